//! Instructions of BPF, with labels (RFC 9669).

/// An encoded instruction: opcode, registers, offset, immediate value.
pub(crate) type Instruction = [u8; 8];

/// A register. Calls take `R1` to `R5`, return in `R0`, and preserve `R6` to `R9`. `R10` is the end of the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Reg {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
}

/// The width of a load or store.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
pub(crate) enum Width {
    W32 = 0x00,
    W16 = 0x08,
    W8 = 0x10,
    W64 = 0x18,
}

/// An operation on a 64-bit register.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
pub(crate) enum Op {
    Add = 0x00,
    Sub = 0x10,
    Mul = 0x20,
    Or = 0x40,
    And = 0x50,
    ShiftLeft = 0x60,
    ShiftRight = 0x70,
    Xor = 0xa0,
    Move = 0xb0,
}

/// When a jump is taken. Comparisons are unsigned.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
pub(crate) enum If {
    Equal = 0x10,
    Greater = 0x20,
    AtLeast = 0x30,
    NotEqual = 0x50,
    AtMost = 0xb0,
}

/// A place in the program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Label(usize);

/// The second operand: a register or a number.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Operand {
    Reg(Reg),
    Number(i32),
}

impl From<Reg> for Operand {
    fn from(reg: Reg) -> Self {
        Self::Reg(reg)
    }
}

impl From<i32> for Operand {
    fn from(number: i32) -> Self {
        Self::Number(number)
    }
}

impl Operand {
    /// The bit of the opcode that says which it is, the register and the number.
    fn parts(self) -> (u8, Reg, i32) {
        match self {
            Self::Reg(reg) => (0x08, reg, 0),
            Self::Number(number) => (0, Reg::R0, number),
        }
    }
}

/// A program on its way.
#[derive(Default)]
pub(crate) struct Assembler {
    instructions: Vec<Instruction>,
    /// Where the labels are.
    labels: Vec<Option<usize>>,
    /// Jumps, and to which label.
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    const LOAD: u8 = 0x61;
    const STORE: u8 = 0x63;
    const STORE_NUMBER: u8 = 0x62;
    const ATOMIC_ADD: u8 = 0xdb;
    const LOAD_NUMBER: u8 = 0x18;
    /// `BPF_PSEUDO_MAP_FD`
    const IS_MAP: u8 = 1;
    const ALU64: u8 = 0x07;
    const TO_BIG_ENDIAN: u8 = 0xdc;
    const JUMP: u8 = 0x05;
    const CALL: u8 = 0x85;
    const EXIT: u8 = 0x95;

    /// A label for a place that comes later.
    pub(crate) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// The label is here.
    pub(crate) fn place(&mut self, label: Label) {
        self.labels[label.0] = Some(self.instructions.len());
    }

    /// `to = *(from + offset)`
    pub(crate) fn load(&mut self, width: Width, to: Reg, from: Reg, offset: i16) {
        self.push(Self::LOAD | width as u8, to, from, offset, 0);
    }

    /// `*(to + offset) = from`
    pub(crate) fn store(&mut self, width: Width, to: Reg, offset: i16, from: impl Into<Operand>) {
        match from.into() {
            Operand::Reg(from) => self.push(Self::STORE | width as u8, to, from, offset, 0),
            Operand::Number(number) => self.push(Self::STORE_NUMBER | width as u8, to, Reg::R0, offset, number),
        }
    }

    /// `*(to + offset) += from`, of 64 bits, at once for all processors.
    pub(crate) fn add_atomically(&mut self, to: Reg, offset: i16, from: Reg) {
        self.push(Self::ATOMIC_ADD, to, from, offset, 0);
    }

    /// `to = number`, of 64 bits.
    pub(crate) fn load_number(&mut self, to: Reg, number: u64) {
        self.load_pair(to, 0, number);
    }

    /// `to` = the map with this descriptor.
    pub(crate) fn load_map(&mut self, to: Reg, descriptor: i32) {
        self.load_pair(to, Self::IS_MAP, u64::from(descriptor.cast_unsigned()));
    }

    fn load_pair(&mut self, to: Reg, source: u8, number: u64) {
        let half = |number: u64| (number as u32).cast_signed();
        self.encode(Self::LOAD_NUMBER, to as u8 | source << 4, 0, half(number));
        self.encode(0, 0, 0, half(number >> 32));
    }

    /// `to = to op operand`
    pub(crate) fn alu(&mut self, op: Op, to: Reg, operand: impl Into<Operand>) {
        let (is_reg, from, number) = operand.into().parts();
        self.push(Self::ALU64 | op as u8 | is_reg, to, from, 0, number);
    }

    /// Converts the low `bits` of `reg`, 16, 32 or 64, from the order of the network, and clears the others.
    pub(crate) fn big_endian(&mut self, reg: Reg, bits: i32) {
        self.push(Self::TO_BIG_ENDIAN, reg, Reg::R0, 0, bits);
    }

    pub(crate) fn jump(&mut self, to: Label) {
        self.jumps.push((self.instructions.len(), to));
        self.push(Self::JUMP, Reg::R0, Reg::R0, 0, 0);
    }

    pub(crate) fn jump_if(&mut self, reg: Reg, condition: If, operand: impl Into<Operand>, to: Label) {
        let (is_reg, from, number) = operand.into().parts();
        self.jumps.push((self.instructions.len(), to));
        self.push(Self::JUMP | condition as u8 | is_reg, reg, from, 0, number);
    }

    /// Calls a function of the kernel, by its number in `enum bpf_func_id`.
    pub(crate) fn call(&mut self, function: i32) {
        self.push(Self::CALL, Reg::R0, Reg::R0, 0, function);
    }

    pub(crate) fn exit(&mut self) {
        self.push(Self::EXIT, Reg::R0, Reg::R0, 0, 0);
    }

    /// The program. All labels of jumps have to be placed.
    pub(crate) fn finish(mut self) -> Vec<Instruction> {
        for (at, Label(label)) in self.jumps {
            let to = self.labels[label].expect("the program places the label");
            // The offset counts from the next instruction.
            let offset = i16::try_from(to.cast_signed() - at.cast_signed() - 1).expect("a short program");
            self.instructions[at][2..4].copy_from_slice(&offset.to_ne_bytes());
        }
        self.instructions
    }

    fn push(&mut self, opcode: u8, to: Reg, from: Reg, offset: i16, number: i32) {
        self.encode(opcode, to as u8 | (from as u8) << 4, offset, number);
    }

    fn encode(&mut self, opcode: u8, registers: u8, offset: i16, number: i32) {
        // A byte has two fields of four bits, in the order of the machine.
        let registers = if cfg!(target_endian = "big") { registers.rotate_left(4) } else { registers };
        let mut instruction = [opcode, registers, 0, 0, 0, 0, 0, 0];
        instruction[2..4].copy_from_slice(&offset.to_ne_bytes());
        instruction[4..].copy_from_slice(&number.to_ne_bytes());
        self.instructions.push(instruction);
    }
}
