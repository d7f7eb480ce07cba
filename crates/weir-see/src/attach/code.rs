//! What machine code of x86-64 takes the address of, stores and calls: enough to see which functions a module registers.
//!
//! No disassembler: the few instructions by which compilers do this are looked for byte by byte, in order, and a
//! register holds what the last of them put there. What comes of it is believed only if it is the address of a function
//! or variable, which four bytes in the middle of another instruction hardly ever are.

/// Something a function does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CodeFact {
    /// It takes this address.
    Takes(u64),
    /// It stores an address it has taken into the variable at an address.
    Sets { variable: u64, value: u64 },
    /// It stores an address it has taken into a field, this many bytes into something.
    Fills { field: i32, value: u64 },
    /// It calls the function there, or goes on there.
    Calls(u64),
}

/// Reads the code that lies at `address`; `load` gives words of the process' memory.
pub(super) fn read(code: &[u8], address: u64, load: &dyn Fn(u64) -> Option<u64>) -> Vec<CodeFact> {
    let mut reader = CodeReader { code, address, load, registers: [None; 16], facts: Vec::new() };
    let mut at = 0;
    while at < code.len() {
        at += reader.instruction(at).unwrap_or(1);
    }
    reader.facts
}

struct CodeReader<'a> {
    code: &'a [u8],
    address: u64,
    load: &'a dyn Fn(u64) -> Option<u64>,
    /// Addresses that registers hold.
    registers: [Option<u64>; 16],
    facts: Vec<CodeFact>,
}

impl CodeReader<'_> {
    /// The length of the instruction at `at`, if it is one of those that matter.
    fn instruction(&mut self, at: usize) -> Option<usize> {
        match *self.code.get(at..)? {
            [0xe8 | 0xe9, ..] => {
                // A byte that is so frequent is not jumped over: it may be in the middle of something.
                let target = self.relative(at + 1, 5)?;
                self.facts.push(CodeFact::Calls(target));
                None
            }
            // mov $imm32, %r32: an address where programs lie below 4 GB.
            [byte @ 0xb8..=0xbf, ..] => {
                let value = u64::from(self.number(at + 1)? as u32);
                (self.load)(value)?;
                self.take(byte & 7, value);
                None
            }
            [rex @ 0x48..=0x4f, opcode, modrm, ..] => self.wide(at, rex, opcode, modrm),
            _ => None,
        }
    }

    /// Instructions of 64 bits.
    fn wide(&mut self, at: usize, rex: u8, opcode: u8, modrm: u8) -> Option<usize> {
        let register = (modrm >> 3 & 7) | (rex & 4) << 1;
        let base = (modrm & 7) | (rex & 1) << 3;
        let is_relative = modrm & 0xc7 == 0x05;
        match opcode {
            0x8d if is_relative => {
                let value = self.relative(at + 3, 7)?;
                self.take(register, value);
                Some(7)
            }
            0x8b if is_relative => {
                let cell = self.relative(at + 3, 7)?;
                self.registers[usize::from(register)] = (self.load)(cell);
                Some(7)
            }
            0x8b => {
                self.registers[usize::from(register)] = None;
                Some(3).filter(|_| modrm >> 6 == 3 || (modrm >> 6 == 0 && base & 7 != 4))
            }
            0x89 if is_relative => {
                let variable = self.relative(at + 3, 7)?;
                self.store(register, |value| CodeFact::Sets { variable, value });
                Some(7)
            }
            0x89 if modrm >> 6 == 3 => {
                self.registers[usize::from(base)] = self.registers[usize::from(register)];
                Some(3)
            }
            0x89 => self.store_through(at, register, base, modrm),
            // mov $imm32, variable
            0xc7 if is_relative => {
                let (variable, value) = (self.relative(at + 3, 11)?, self.number(at + 7)? as u64);
                self.facts.extend([CodeFact::Takes(value), CodeFact::Sets { variable, value }]);
                Some(11)
            }
            // mov $imm32, disp8(base)
            0xc7 if modrm & 0xf8 == 0x40 && base & 7 != 4 => {
                let (field, value) = (*self.code.get(at + 3)? as i8, self.number(at + 4)? as u64);
                self.facts.extend([CodeFact::Takes(value), CodeFact::Fills { field: field.into(), value }]);
                Some(8)
            }
            // mov $imm32, disp32(base)
            0xc7 if modrm & 0xf8 == 0x80 && base & 7 != 4 => {
                let (field, value) = (self.number(at + 3)?, self.number(at + 7)? as u64);
                self.facts.extend([CodeFact::Takes(value), CodeFact::Fills { field, value }]);
                Some(11)
            }
            _ => None,
        }
    }

    /// `mov %register, disp(%base)`
    fn store_through(&mut self, at: usize, register: u8, base: u8, modrm: u8) -> Option<usize> {
        // Of the stack pointer and %r12 a byte more says that nothing is added.
        let more = match (base & 7, self.code.get(at + 3).copied().unwrap_or(0)) {
            (4, 0x24) => 1,
            (4, _) => return None,
            _ => 0,
        };
        let (field, length) = match modrm >> 6 {
            0 => (0, 3),
            1 => (i32::from(*self.code.get(at + 3 + more)? as i8), 4),
            _ => (self.number(at + 3 + more)?, 7),
        };
        match self.registers[usize::from(base)].filter(|_| field == 0) {
            Some(variable) => self.store(register, |value| CodeFact::Sets { variable, value }),
            None => self.store(register, |value| CodeFact::Fills { field, value }),
        }
        Some(length + more)
    }

    fn store(&mut self, register: u8, fact: impl FnOnce(u64) -> CodeFact) {
        if let Some(value) = self.registers[usize::from(register)] {
            self.facts.push(fact(value));
        }
    }

    fn take(&mut self, register: u8, value: u64) {
        self.registers[usize::from(register)] = Some(value);
        self.facts.push(CodeFact::Takes(value));
    }

    /// What the four bytes at `at` point to, counted from the end of an instruction of `length`.
    fn relative(&self, at: usize, length: u64) -> Option<u64> {
        let distance = i64::from(self.number(at)?);
        // The distance is at the instruction's second, third or fourth byte.
        let begin = at - if length == 5 { 1 } else { 3 };
        Some(self.address.wrapping_add(begin as u64 + length).wrapping_add_signed(distance))
    }

    fn number(&self, at: usize) -> Option<i32> {
        let bytes = self.code.get(at..at + 4)?;
        Some(i32::from_le_bytes(bytes.try_into().expect("four bytes")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_registers_itself_is_seen_in_each_form() {
        // lea 0x10(%rip),%rax; lea 0x20(%rip),%rcx; mov (%rax),%rdx; mov %rcx,(%rax)
        let through = [
            0x48, 0x8d, 0x05, 0x10, 0, 0, 0, 0x48, 0x8d, 0x0d, 0x20, 0, 0, 0, 0x48, 0x8b, 0x10, 0x48, 0x89,
            0x08,
        ];
        let facts = read(&through, 0x1000, &|_| None);
        assert!(facts.contains(&CodeFact::Sets { variable: 0x1017, value: 0x102e }), "{facts:x?}");
        // lea 0x20(%rip),%rax; mov %rax,0x30(%rip)
        let direct = [0x48, 0x8d, 0x05, 0x20, 0, 0, 0, 0x48, 0x89, 0x05, 0x30, 0, 0, 0];
        let facts = read(&direct, 0x1000, &|_| None);
        assert_eq!(facts, [CodeFact::Takes(0x1027), CodeFact::Sets { variable: 0x103e, value: 0x1027 }]);
        // mov 0x40(%rip),%rax (the table of imports); lea 0x20(%rip),%rcx; mov %rcx,(%rax)
        let import = [0x48, 0x8b, 0x05, 0x40, 0, 0, 0, 0x48, 0x8d, 0x0d, 0x20, 0, 0, 0, 0x48, 0x89, 0x08];
        let facts = read(&import, 0x1000, &|cell| (cell == 0x1047).then_some(0x7777));
        assert!(facts.contains(&CodeFact::Sets { variable: 0x7777, value: 0x102e }), "{facts:x?}");
        // movq $0x401000,0x30(%rip)
        let low = [0x48, 0xc7, 0x05, 0x30, 0, 0, 0, 0, 0x10, 0x40, 0];
        assert!(
            read(&low, 0x1000, &|_| None).contains(&CodeFact::Sets { variable: 0x103b, value: 0x40_1000 })
        );
    }

    #[test]
    fn fields_and_calls_are_seen() {
        // lea 0x20(%rip),%r8; mov %r8,0x120(%rbx); mov %r8,0x18(%rbp); call +5; jmp -5
        let code = [
            0x4c, 0x8d, 0x05, 0x20, 0, 0, 0, 0x4c, 0x89, 0x83, 0x20, 1, 0, 0, 0x4c, 0x89, 0x45, 0x18, 0xe8,
            5, 0, 0, 0, 0xe9, 0xfb, 0xff, 0xff, 0xff,
        ];
        let facts = read(&code, 0x1000, &|_| None);
        let value = 0x1027;
        assert_eq!(
            facts,
            [
                CodeFact::Takes(value),
                CodeFact::Fills { field: 0x120, value },
                CodeFact::Fills { field: 0x18, value },
                CodeFact::Calls(0x101c),
                CodeFact::Calls(0x1017),
            ]
        );
        // lea 0x20(%rip),%rax; mov %rax,0x58(%r12); mov %rax,0x60(%r12,%rcx)
        let code =
            [0x48, 0x8d, 0x05, 0x20, 0, 0, 0, 0x49, 0x89, 0x44, 0x24, 0x58, 0x49, 0x89, 0x44, 0x0c, 0x60];
        let facts = read(&code, 0x1000, &|_| None);
        assert_eq!(facts, [CodeFact::Takes(value), CodeFact::Fills { field: 0x58, value }]);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_to_their_end(code in proptest::collection::vec(0u8.., 0..200), address: u64) {
            let facts = read(&code, address, &|cell| Some(cell ^ 1));
            proptest::prop_assert!(facts.len() <= 2 * code.len());
        }
    }
}
