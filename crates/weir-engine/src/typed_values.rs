//! Values of types that only their owners know: what modules keep with exchanges, plans and servers.

use std::any::{Any, TypeId};

/// Values, found by their types; a list whose memory can serve again.
///
/// Each is beside the number of its type: to ask the values themselves is a call for each.
#[derive(Default)]
pub(crate) struct TypedValues(Vec<(TypeId, Box<dyn Any>)>);

impl TypedValues {
    /// The value of this type, made by `Default` when it is absent.
    pub(crate) fn of<T: Default + 'static>(&mut self) -> &mut T {
        let at = self.place::<T>().unwrap_or_else(|| {
            self.push(Box::<T>::default());
            self.0.len() - 1
        });
        self.0[at].1.downcast_mut().expect("found by its type")
    }

    /// The first value of this type, if there is one.
    pub(crate) fn find<T: 'static>(&self) -> Option<&T> {
        self.all().next()
    }

    /// All values of this type, in the order in which they came.
    pub(crate) fn all<T: 'static>(&self) -> impl Iterator<Item = &T> {
        let wanted = TypeId::of::<T>();
        let of_type = self.0.iter().filter(move |(kind, _)| *kind == wanted);
        of_type.filter_map(|(_, value)| value.downcast_ref())
    }

    /// Adds a value beside those of its type.
    pub(crate) fn push(&mut self, value: Box<dyn Any>) {
        self.0.push(((*value).type_id(), value));
    }

    /// Takes the value of this type out, if there is one.
    pub(crate) fn take<T: 'static>(&mut self) -> Option<Box<T>> {
        let at = self.place::<T>()?;
        self.0.swap_remove(at).1.downcast().ok()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        if !self.0.is_empty() {
            self.0.clear();
        }
    }

    fn place<T: 'static>(&self) -> Option<usize> {
        let wanted = TypeId::of::<T>();
        self.0.iter().position(|(kind, _)| *kind == wanted)
    }
}
