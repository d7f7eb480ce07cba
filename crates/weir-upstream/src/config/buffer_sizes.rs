//! The sizes of a block's buffers, and whether they fit together.

use weir_conf::BufferSizes;

use crate::config::directives::UpstreamFamily;

/// What a block says of sizes, with the defaults.
pub(crate) struct ResponseBufferSizes {
    pub(crate) buffer_size: u64,
    pub(crate) buffers: BufferSizes,
    busy: u64,
    pub(crate) max_temp_file_size: u64,
    pub(crate) temp_file_write_size: u64,
}

impl ResponseBufferSizes {
    pub(crate) fn of(family: &UpstreamFamily) -> ResponseBufferSizes {
        let buffer_size = family.buffer_size.unwrap_or(PAGE);
        let buffers = family.buffers.unwrap_or(BufferSizes { number: 8, size: PAGE });
        let largest = buffer_size.max(buffers.size);
        ResponseBufferSizes {
            buffer_size,
            buffers,
            busy: family.busy_buffers_size.unwrap_or(2 * largest),
            max_temp_file_size: family.max_temp_file_size.unwrap_or(1 << 30),
            temp_file_write_size: family.temp_file_write_size.unwrap_or(2 * largest),
        }
    }

    /// # Errors
    /// nginx's words for the first pair that does not fit.
    pub(crate) fn check(&self, prefix: &str) -> Result<(), String> {
        let ResponseBufferSizes { buffers, busy, max_temp_file_size, temp_file_write_size, .. } = *self;
        let largest = self.buffer_size.max(buffers.size);
        if buffers.number < 2 {
            return Err(format!("there must be at least 2 \"{prefix}_buffers\""));
        }
        let maximum = || {
            format!(
                "the maximum of the value of \"{prefix}_buffer_size\" and one of the \"{prefix}_buffers\""
            )
        };
        if busy < largest {
            let maximum = maximum();
            return Err(format!("\"{prefix}_busy_buffers_size\" must be equal to or greater than {maximum}"));
        }
        if busy > (buffers.number - 1) * buffers.size {
            return Err(format!(
                "\"{prefix}_busy_buffers_size\" must be less than the size of all \"{prefix}_buffers\" minus one buffer"
            ));
        }
        if max_temp_file_size != 0 && max_temp_file_size < largest {
            return Err(format!(
                "\"{prefix}_max_temp_file_size\" must be equal to zero to disable temporary files usage or must be \
                 equal to or greater than {}",
                maximum()
            ));
        }
        if temp_file_write_size < largest {
            return Err(format!(
                "\"{prefix}_temp_file_write_size\" must be equal to or greater than {}",
                maximum()
            ));
        }
        Ok(())
    }
}

const PAGE: u64 = 4096;
