//! Classic BPF: programs that end, and their interpreter (bpf(4), "The BSD Packet Filter", USENIX Winter 1993 §3).
#![forbid(unsafe_code)]

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Largest number of instructions of a program, that of Linux.
pub const MAX_INSTRUCTIONS: usize = 4096;

/// Number of words of the scratch memory.
const MEMORY: usize = 16;

// instruction classes
const LD: u16 = 0x00;
const LDX: u16 = 0x01;
const ST: u16 = 0x02;
const STX: u16 = 0x03;
const ALU: u16 = 0x04;
const JMP: u16 = 0x05;
const RET: u16 = 0x06;
const MISC: u16 = 0x07;
// sizes of loads
const W: u16 = 0x00;
const H: u16 = 0x08;
const B: u16 = 0x10;
// modes of loads
const IMM: u16 = 0x00;
const ABS: u16 = 0x20;
const IND: u16 = 0x40;
const MEM: u16 = 0x60;
const LEN: u16 = 0x80;
/// Four times the lower half of a byte: the length of an IPv4 header.
const MSH: u16 = 0xa0;
// operations
const ADD: u16 = 0x00;
const SUB: u16 = 0x10;
const MUL: u16 = 0x20;
const DIV: u16 = 0x30;
const OR: u16 = 0x40;
const AND: u16 = 0x50;
const LSH: u16 = 0x60;
const RSH: u16 = 0x70;
const NEG: u16 = 0x80;
const MOD: u16 = 0x90;
const XOR: u16 = 0xa0;
// jumps
const JA: u16 = 0x00;
const JEQ: u16 = 0x10;
const JGT: u16 = 0x20;
const JGE: u16 = 0x30;
const JSET: u16 = 0x40;
/// Operand X instead of a constant.
const X: u16 = 0x08;
/// Operand A of a return instruction.
const A: u16 = 0x10;
const TAX: u16 = 0x00;
const TXA: u16 = 0x80;

/// One instruction, as `struct bpf_insn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Instruction {
    /// Operation.
    pub code: u16,
    /// Instructions skipped if a condition is true.
    pub jt: u8,
    /// Instructions skipped if a condition is false.
    pub jf: u8,
    /// Constant.
    pub k: u32,
}

/// A program that is no filter.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidProgram {
    /// It has no instruction, or more than [`MAX_INSTRUCTIONS`].
    #[error("a filter has from 1 to {MAX_INSTRUCTIONS} instructions, not {0}")]
    Length(usize),
    /// An instruction is unknown, divides by 0, shifts by 32 or more, or uses memory that does not exist.
    #[error("instruction {0} of the filter does not exist, or its constant is not valid")]
    Instruction(usize),
    /// A jump leaves the program.
    #[error("instruction {0} of the filter jumps out of it")]
    Jump(usize),
    /// The program does not end with a return.
    #[error("the filter does not end with a return instruction")]
    End,
}

/// A program that ends after at most as many steps as it has instructions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Vec<Instruction>", into = "Vec<Instruction>")]
#[schemars(with = "Vec<Instruction>")]
pub struct Program(Box<[Instruction]>);

impl TryFrom<Vec<Instruction>> for Program {
    type Error = InvalidProgram;

    fn try_from(instructions: Vec<Instruction>) -> Result<Self, InvalidProgram> {
        Program::new(instructions)
    }
}

impl From<Program> for Vec<Instruction> {
    fn from(program: Program) -> Self {
        program.0.into()
    }
}

impl Program {
    /// Checks a program. Jumps lead forwards, so every program ends.
    ///
    /// # Errors
    /// The first instruction that is not valid.
    pub fn new(instructions: Vec<Instruction>) -> Result<Self, InvalidProgram> {
        let n = instructions.len();
        if n == 0 || n > MAX_INSTRUCTIONS {
            return Err(InvalidProgram::Length(n));
        }
        for (at, i) in instructions.iter().enumerate() {
            if !i.exists() {
                return Err(InvalidProgram::Instruction(at));
            }
            let furthest = if i.code == JMP | JA { i.k as usize } else { usize::from(i.jt.max(i.jf)) };
            if i.code & 7 == JMP && furthest >= n - at - 1 {
                return Err(InvalidProgram::Jump(at));
            }
        }
        match instructions.last() {
            Some(last) if last.code & 7 == RET => Ok(Program(instructions.into())),
            _ => Err(InvalidProgram::End),
        }
    }

    /// Returns true if the program accepts a frame.
    pub fn accepts(&self, frame: &[u8]) -> bool {
        self.run(frame) != 0
    }

    /// Returns what the program returns for a frame: the number of bytes to capture, 0 if it is not accepted. A program
    /// that reads beyond the frame, or divides by 0, does not accept it.
    pub fn run(&self, frame: &[u8]) -> u32 {
        self.interpret(frame).unwrap_or(0)
    }

    fn interpret(&self, frame: &[u8]) -> Option<u32> {
        let (mut a, mut x, mut memory) = (0_u32, 0_u32, [0_u32; MEMORY]);
        let mut at = 0;
        loop {
            let i = self.0.get(at)?;
            at += 1;
            let (k, operand) = (i.k, if i.code & X == 0 { i.k } else { x });
            match i.code & 7 {
                LD => {
                    a = match i.code & 0xe0 {
                        IMM => k,
                        LEN => frame.len() as u32,
                        MEM => memory[k as usize],
                        ABS => load(frame, k, i.code)?,
                        _ => load(frame, x.checked_add(k)?, i.code)?,
                    }
                }
                LDX => {
                    x = match i.code & 0xe0 {
                        IMM => k,
                        LEN => frame.len() as u32,
                        MEM => memory[k as usize],
                        _ => 4 * (load(frame, k, B)? & 0xf),
                    }
                }
                ST => memory[k as usize] = a,
                STX => memory[k as usize] = x,
                ALU => {
                    a = match i.code & 0xf0 {
                        ADD => a.wrapping_add(operand),
                        SUB => a.wrapping_sub(operand),
                        MUL => a.wrapping_mul(operand),
                        DIV => a.checked_div(operand)?,
                        MOD => a.checked_rem(operand)?,
                        OR => a | operand,
                        AND => a & operand,
                        XOR => a ^ operand,
                        // libpcap: a shift by the width or more yields 0
                        LSH => a.checked_shl(operand).unwrap_or(0),
                        RSH => a.checked_shr(operand).unwrap_or(0),
                        _ => a.wrapping_neg(),
                    }
                }
                JMP => {
                    let taken = match i.code & 0xf0 {
                        JA => {
                            at += k as usize;
                            continue;
                        }
                        JEQ => a == operand,
                        JGT => a > operand,
                        JGE => a >= operand,
                        _ => a & operand != 0,
                    };
                    at += usize::from(if taken { i.jt } else { i.jf });
                }
                RET => return Some(if i.code & 0x18 == A { a } else { k }),
                _ if i.code & 0xf8 == TAX => x = a,
                _ => a = x,
            }
        }
    }
}

impl Instruction {
    /// Returns true if the operation exists and its constant is valid.
    fn exists(self) -> bool {
        let Instruction { code, k, .. } = self;
        let in_memory = (k as usize) < MEMORY;
        match code & 7 {
            LD if [W, H, B].contains(&(code & 0x18)) && [ABS, IND].contains(&(code & 0xe0)) => code < 0x100,
            LD if [LD | IMM, LD | LEN].contains(&code) => true,
            LDX if [LDX | IMM, LDX | LEN, LDX | MSH | B].contains(&code) => true,
            LD | LDX => code & !1 == MEM && in_memory,
            ST | STX => code <= 7 && in_memory,
            ALU if code == ALU | NEG => true,
            ALU => {
                let known = [ADD, SUB, MUL, DIV, OR, AND, LSH, RSH, MOD, XOR].contains(&(code & 0xf0)) && code < 0x100;
                let is_valid = match code & 0xf0 {
                    DIV | MOD => code & X != 0 || k != 0,
                    LSH | RSH => code & X != 0 || k < 32,
                    _ => true,
                };
                known && is_valid
            }
            JMP => code == JMP | JA || [JEQ, JGT, JGE, JSET].contains(&(code & 0xf0)) && code < 0x100,
            RET => [RET, RET | A].contains(&code),
            _ => [MISC | TAX, MISC | TXA].contains(&code),
        }
    }
}

/// Loads a big-endian word, half word or byte.
fn load(frame: &[u8], at: u32, size: u16) -> Option<u32> {
    let from = frame.get(at as usize..)?;
    match size & 0x18 {
        W => Some(u32::from_be_bytes(*from.first_chunk()?)),
        H => Some(u32::from(u16::from_be_bytes(*from.first_chunk()?))),
        _ => Some(u32::from(*from.first()?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn instruction(code: u16, k: u32) -> Instruction {
        Instruction { code, jt: 0, jf: 0, k }
    }

    #[test]
    fn invalid_programs_are_refused() {
        let ret = instruction(RET, 1);
        let program = |all: &[Instruction]| Program::new(all.to_vec()).map(|_| ());
        assert_eq!(program(&[]), Err(InvalidProgram::Length(0)));
        assert_eq!(program(&[ret; MAX_INSTRUCTIONS + 1]), Err(InvalidProgram::Length(4097)));
        for code in [0x18, 0x20 | 0x18, 0x100 | 0x20, 0xff, ALU | 0xb0, JMP | 0x50, RET | 0x18, 0x08] {
            assert_eq!(program(&[instruction(code, 0), ret]), Err(InvalidProgram::Instruction(0)), "{code:#x}");
        }
        for code in [LD | MEM, LDX | MEM, ST, STX] {
            assert_eq!(program(&[ret, instruction(code, 16), ret]), Err(InvalidProgram::Instruction(1)));
            assert_eq!(program(&[ret, instruction(code, 15), ret]), Ok(()));
        }
        for divides_or_shifts in [instruction(ALU | DIV, 0), instruction(ALU | LSH, 32)] {
            assert_eq!(program(&[divides_or_shifts, ret]), Err(InvalidProgram::Instruction(0)));
        }
        assert_eq!(program(&[instruction(JMP | JA, u32::MAX), ret]), Err(InvalidProgram::Jump(0)));
        assert_eq!(program(&[Instruction { jf: 1, ..instruction(JMP | JEQ, 0) }, ret]), Err(InvalidProgram::Jump(0)));
        assert_eq!(program(&[ret, instruction(JMP | JEQ, 0)]), Err(InvalidProgram::Jump(1)));
        assert_eq!(program(&[ret, instruction(LD | LEN, 0)]), Err(InvalidProgram::End));
    }

    /// Any instruction, often a valid one.
    fn any_instruction() -> impl Strategy<Value = Instruction> {
        let known = [
            vec![LD | IMM, LD | LEN, LD | MEM, LDX | IMM, LDX | LEN, LDX | MEM, LDX | MSH | B, ST, STX],
            [W, H, B].iter().flat_map(|size| [LD | ABS | size, LD | IND | size]).collect(),
            (0..11).flat_map(|op| [ALU | op << 4, ALU | X | op << 4]).collect(),
            (1..5).flat_map(|op| [JMP | op << 4, JMP | X | op << 4]).collect(),
            vec![JMP | JA, RET, RET | A, MISC | TAX, MISC | TXA],
        ]
        .concat();
        let code = prop_oneof![9 => prop::sample::select(known), 1 => any::<u16>()];
        let k = prop_oneof![8 => 0..40_u32, 1 => any::<u32>()];
        (code, 0..4_u8, 0..4_u8, k).prop_map(|(code, jt, jf, k)| Instruction { code, jt, jf, k })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]
        #[test]
        fn programs_do_what_libpcap_does(
            program in prop::collection::vec(any_instruction(), 1..24),
            frame in prop::collection::vec(any::<u8>(), 0..48),
        ) {
            // libpcap does not set the memory to 0
            let zeros = (0..MEMORY as u32).map(|k| instruction(ST, k));
            let instructions: Vec<_> = zeros.chain(program).chain([instruction(RET | A, 0)]).collect();
            let checked = Program::new(instructions.clone());
            // libpcap's own check permits more operations
            if let Ok(program) = checked {
                prop_assert_eq!(program.run(&frame), crate::compile::tests::libpcap_runs(&instructions, &frame));
                let text: Vec<Instruction> = program.clone().into();
                prop_assert_eq!(Program::try_from(text), Ok(program));
            }
        }
    }
}
