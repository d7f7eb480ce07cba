//! What a crate above stores with each exchange: the proxy's attempts, which the engine clears, logs and does not know.

use std::any::Any;

use super::Exchange;
use crate::text::Arena;

/// The part of an exchange that is another storey's. There is one at most, made when it is asked for first; the exchange
/// keeps it, emptied, for its next requests.
pub trait ExchangePart: Any {
    /// Forgets the request, and keeps the memory.
    fn clear(&mut self);

    /// Writes what messages about the request say of the part, such as `, upstream: "http://127.0.0.1:80/"`.
    fn write_context(&self, arena: &Arena, out: &mut Vec<u8>);

    /// Logs what went wrong where the exchange was out of reach. `false`: nothing that ended the response did.
    fn log_complaints(&self, x: &Exchange) -> bool;
}

impl Exchange {
    /// The part, which is a `P` for all exchanges of the process.
    ///
    /// # Panics
    /// Two storeys want different parts.
    #[inline]
    pub fn part<P: ExchangePart + Default>(&mut self) -> &mut P {
        let part = self.part.get_or_insert_with(|| Box::<P>::default());
        (&mut **part as &mut dyn Any).downcast_mut().expect("one storey has a part in exchanges")
    }

    /// The part, if it was asked for before.
    #[inline]
    pub fn part_if<P: ExchangePart>(&self) -> Option<&P> {
        (&**self.part.as_ref()? as &dyn Any).downcast_ref()
    }

    /// See [`ExchangePart::write_context`].
    pub(crate) fn write_part_context(&self, out: &mut Vec<u8>) {
        if let Some(part) = &self.part {
            part.write_context(&self.arena, out);
        }
    }

    /// See [`ExchangePart::log_complaints`].
    #[inline]
    pub(crate) fn log_complaints(&self) -> bool {
        self.part.as_ref().is_some_and(|part| part.log_complaints(self))
    }
}
