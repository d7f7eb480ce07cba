//! The memory of another process, read while it runs.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// /proc/PID/mem.
pub(super) struct ProcessMemory {
    file: File,
}

impl ProcessMemory {
    /// Of the process `pid`.
    ///
    /// # Errors
    /// There is no such process, or it may not be looked into.
    pub(super) fn of(pid: u32) -> Result<ProcessMemory, String> {
        let path = format!("/proc/{pid}/mem");
        let file = File::open(&path).map_err(|error| format!("\"{path}\": {error}"))?;
        Ok(ProcessMemory { file })
    }

    /// A word.
    pub(super) fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, address).ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    /// Words that follow upon one another; as many as could be read.
    pub(super) fn words(&self, address: u64, count: usize) -> Vec<u64> {
        let mut bytes = vec![0; count * 8];
        let mut done = 0;
        while done < bytes.len() {
            match self.file.read_at(&mut bytes[done..], address.wrapping_add(done as u64)) {
                Ok(read) if read > 0 => done += read,
                _ => break,
            }
        }
        let words = bytes[..done].chunks_exact(8);
        words.map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes"))).collect()
    }

    /// A text up to its zero byte, of at most 128 bytes.
    pub(super) fn text(&self, address: u64) -> Option<String> {
        let words = self.words(address, 16);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let end = bytes.iter().position(|&byte| byte == 0)?;
        String::from_utf8(bytes[..end].to_vec()).ok()
    }

    /// `length` bytes.
    pub(super) fn bytes(&self, address: u64, length: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, address).ok()?;
        Some(bytes)
    }
}
