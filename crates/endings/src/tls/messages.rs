//! Handshake messages, read as they come: of hellos a few fields, of others their type.

/// Types of messages (RFC 8446, section 4).
const CLIENT_HELLO: u8 = 1;
const SERVER_HELLO: u8 = 2;
const CERTIFICATE: u8 = 11;
/// Types of extensions (RFC 8446, section 4.2).
const SERVER_NAME: u16 = 0;
const PRE_SHARED_KEY: u16 = 41;
const SUPPORTED_VERSIONS: u16 = 43;
/// The `random` of a `HelloRetryRequest` (RFC 8446, section 4.1.3) begins so.
const RETRY: [u8; 8] = [0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11];
const SESSION_LEN_MAX: usize = 32;
const NAME_LEN_MAX: usize = 253;
const FIELD_LEN_MAX: usize = 34;

/// What a message says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message {
    ClientHello(Hello, Option<Box<str>>),
    ServerHello(Hello),
    Certificate,
    Other,
}

/// What a hello says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) version: u16,
    pub(crate) session: Session,
    pub(crate) has_psk: bool,
    pub(crate) is_retry: bool,
}

/// A session id.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Session {
    id: [u8; SESSION_LEN_MAX],
    pub(crate) len: u8,
}

/// Reads one direction's messages.
#[derive(Debug)]
pub(crate) struct Messages {
    step: Step,
    field: [u8; FIELD_LEN_MAX],
    have: u8,
    kind: u8,
    /// Of the message, and to be passed over before the next field.
    left: u32,
    skip: u32,
    hello: Hello,
    name: Vec<u8>,
}

/// The field that is read next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Type and length.
    Head,
    /// Version and random.
    Front,
    SessionLen,
    Session(u8),
    /// The client's: lengths of lists.
    SuitesLen,
    CompressionsLen,
    /// The server's choice of both.
    Choice,
    ExtensionsLen,
    Extension,
    /// The version that the server chose.
    Version,
    /// Lengths and type in front of a name.
    NameHead,
    Name(u8),
    /// To the end of the message.
    Rest,
    /// A part is missing.
    Lost,
}

impl Messages {
    pub(crate) const fn new() -> Self {
        Self {
            step: Step::Head,
            field: [0; FIELD_LEN_MAX],
            have: 0,
            kind: 0,
            left: 0,
            skip: 0,
            hello: Hello {
                version: 0,
                session: Session { id: [0; SESSION_LEN_MAX], len: 0 },
                has_psk: false,
                is_retry: false,
            },
            name: Vec::new(),
        }
    }

    /// Octets are missing; what follows cannot be told apart.
    pub(crate) fn lose(&mut self) {
        self.step = Step::Lost;
        self.name = Vec::new();
    }

    /// The next message that is complete with these octets, which are consumed. `None`: all are.
    pub(crate) fn next(&mut self, bytes: &mut &[u8]) -> Option<Message> {
        loop {
            if self.step == Step::Lost {
                *bytes = &[];
                return None;
            }
            if self.step != Step::Head && self.left == 0 {
                return Some(self.finish());
            }
            if bytes.is_empty() {
                return None;
            }
            if self.skip > 0 {
                let skipped = self.skip.min(bytes.len() as u32);
                *bytes = &bytes[skipped as usize..];
                self.skip -= skipped;
                self.left -= skipped;
                continue;
            }
            self.read(bytes);
        }
    }

    /// Reads on in the field of this step, and takes the step when it is whole.
    fn read(&mut self, bytes: &mut &[u8]) {
        if let Step::Name(len) = self.step {
            let taken = (usize::from(len) - self.name.len()).min(bytes.len());
            self.name.extend_from_slice(&bytes[..taken]);
            *bytes = &bytes[taken..];
            self.left -= taken as u32;
            if self.name.len() == usize::from(len) {
                self.step = Step::Rest;
                self.skip = self.left;
            }
            return;
        }
        let want = self.step.len();
        let have = usize::from(self.have);
        let taken = (want - have).min(bytes.len());
        self.field[have..have + taken].copy_from_slice(&bytes[..taken]);
        *bytes = &bytes[taken..];
        self.have += taken as u8;
        if self.step != Step::Head {
            self.left -= taken as u32;
        }
        if usize::from(self.have) == want {
            self.have = 0;
            self.step = self.take();
            // A field that its message has no room for is no field.
            if self.left < self.skip || self.step.least() > self.left - self.skip {
                (self.step, self.skip) = (Step::Rest, self.left);
            }
        }
    }

    /// A field is whole; the next one.
    fn take(&mut self) -> Step {
        let u16_at = |at: usize| u16::from_be_bytes([self.field[at], self.field[at + 1]]);
        match self.step {
            Step::Head => {
                self.kind = self.field[0];
                self.left = u32::from_be_bytes([0, self.field[1], self.field[2], self.field[3]]);
                self.hello = Hello::default();
                self.name = Vec::new();
                if self.kind == CLIENT_HELLO || self.kind == SERVER_HELLO {
                    return Step::Front;
                }
                self.rest()
            }
            Step::Front => {
                self.hello.version = u16_at(0);
                self.hello.is_retry = self.field[2..10] == RETRY;
                Step::SessionLen
            }
            Step::SessionLen => match self.field[0] {
                0 => self.behind_session(),
                len if usize::from(len) <= SESSION_LEN_MAX => Step::Session(len),
                _ => self.rest(),
            },
            Step::Session(len) => {
                self.hello.session.id[..len.into()].copy_from_slice(&self.field[..len.into()]);
                self.hello.session.len = len;
                self.behind_session()
            }
            Step::SuitesLen => {
                self.skip = u16_at(0).into();
                Step::CompressionsLen
            }
            Step::CompressionsLen => {
                self.skip = self.field[0].into();
                Step::ExtensionsLen
            }
            Step::Choice => Step::ExtensionsLen,
            Step::ExtensionsLen => Step::Extension,
            Step::Extension => self.take_extension(u16_at(0), u16_at(2)),
            Step::Version => {
                self.hello.version = u16_at(0);
                Step::Extension
            }
            Step::NameHead => {
                let len = u16_at(3);
                if self.field[2] == 0 && 0 < len && usize::from(len) <= NAME_LEN_MAX {
                    return Step::Name(len as u8);
                }
                self.rest()
            }
            Step::Name(_) | Step::Rest | Step::Lost => self.rest(),
        }
    }

    fn take_extension(&mut self, kind: u16, len: u16) -> Step {
        let is_client = self.kind == CLIENT_HELLO;
        match kind {
            SERVER_NAME if is_client && len >= 5 => return Step::NameHead,
            SUPPORTED_VERSIONS if !is_client && len == 2 => return Step::Version,
            PRE_SHARED_KEY => self.hello.has_psk = true,
            _ => {}
        }
        self.skip = len.into();
        Step::Extension
    }

    fn behind_session(&self) -> Step {
        if self.kind == CLIENT_HELLO { Step::SuitesLen } else { Step::Choice }
    }

    fn rest(&mut self) -> Step {
        self.skip = self.left;
        Step::Rest
    }

    fn finish(&mut self) -> Message {
        self.step = Step::Head;
        self.skip = 0;
        let name = std::mem::take(&mut self.name);
        match self.kind {
            CLIENT_HELLO => Message::ClientHello(self.hello, host_name(&name)),
            SERVER_HELLO => Message::ServerHello(self.hello),
            CERTIFICATE => Message::Certificate,
            _ => Message::Other,
        }
    }
}

impl Step {
    /// How many octets its field has.
    const fn len(self) -> usize {
        match self {
            Self::Head | Self::Extension => 4,
            Self::Front => 34,
            Self::SessionLen | Self::CompressionsLen => 1,
            Self::Session(len) | Self::Name(len) => len as usize,
            Self::SuitesLen | Self::ExtensionsLen | Self::Version => 2,
            Self::Choice => 3,
            Self::NameHead => 5,
            Self::Rest | Self::Lost => 0,
        }
    }

    /// How many octets its message must have left.
    const fn least(self) -> u32 {
        self.len() as u32
    }
}

/// A name that can be one, in lower case.
fn host_name(name: &[u8]) -> Option<Box<str>> {
    let name = str::from_utf8(name).ok()?;
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
    is_name.then(|| name.to_ascii_lowercase().into_boxed_str())
}
