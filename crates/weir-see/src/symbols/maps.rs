//! What lies where in a process: /proc/PID/maps.

use std::ops::Range;

/// One stretch of executable memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CodeMapping {
    pub(crate) addresses: Range<u64>,
    /// Where in the file it begins.
    pub(crate) offset: u64,
    /// Major and minor number of the device, and the inode: which file it is, whatever its name is now.
    pub(crate) file: (u32, u32, u64),
    /// The file's name as the kernel knows it, ` (deleted)` after it when it has none any more; `[vdso]`; or nothing,
    /// where code was made at run time.
    pub(crate) path: String,
}

/// The executable mappings, in the order of addresses. Lines of another form are passed over.
pub(crate) fn parse(text: &str) -> Vec<CodeMapping> {
    text.lines().filter_map(line).collect()
}

/// `55d0-55f0 r-xp 00001000 fe:01 1234   /usr/bin/weir`
fn line(line: &str) -> Option<CodeMapping> {
    let mut rest = line;
    let mut word = || {
        let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = after.trim_start();
        word
    };
    let (addresses, permissions, offset, device, inode) = (word(), word(), word(), word(), word());
    if !permissions.contains('x') {
        return None;
    }
    let (start, end) = addresses.split_once('-')?;
    let (major, minor) = device.split_once(':')?;
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let narrow = |text: &str| u32::from_str_radix(text, 16).ok();
    Some(CodeMapping {
        addresses: hex(start)?..hex(end)?,
        offset: hex(offset)?,
        file: (narrow(major)?, narrow(minor)?, inode.parse().ok()?),
        path: rest.to_owned(),
    })
}

/// The mapping that holds `address`.
pub(super) fn find(maps: &[CodeMapping], address: u64) -> Option<&CodeMapping> {
    let after = maps.partition_point(|mapping| mapping.addresses.end <= address);
    maps.get(after).filter(|mapping| mapping.addresses.contains(&address))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
55d0c0a00000-55d0c0a10000 r--p 00000000 fe:01 1234                       /usr/sbin/weir (deleted)
55d0c0a10000-55d0c0b00000 r-xp 00010000 fe:01 1234                       /usr/sbin/weir (deleted)
7f0000000000-7f0000010000 rwxp 00000000 00:00 0
7ffc00000000-7ffc00002000 r-xp 00000000 00:00 0                          [vdso]
not a line
";

    #[test]
    fn executable_stretches_are_found_by_address() {
        let maps = parse(TEXT);
        assert_eq!(maps.len(), 3);
        let weir = find(&maps, 0x55d0_c0a1_0000).expect("the first address");
        assert_eq!(
            (weir.offset, weir.file, &*weir.path),
            (0x10000, (0xfe, 1, 1234), "/usr/sbin/weir (deleted)")
        );
        assert_eq!(find(&maps, 0x7f00_0000_0001).map(|mapping| &*mapping.path), Some(""));
        assert_eq!(find(&maps, 0x7ffc_0000_1fff).map(|mapping| &*mapping.path), Some("[vdso]"));
        for nowhere in [0, 0x55d0_c0a0_ffff, 0x55d0_c0b0_0000, u64::MAX] {
            assert_eq!(find(&maps, nowhere), None);
        }
    }
}
