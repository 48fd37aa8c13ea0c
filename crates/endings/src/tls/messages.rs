//! Parses handshake messages as they arrive: some fields of hellos, only the type of others.

/// Handshake message types (RFC 8446, section 4).
const CLIENT_HELLO: u8 = 1;
const SERVER_HELLO: u8 = 2;
const CERTIFICATE: u8 = 11;
/// Extension types (RFC 8446, section 4.2).
const SERVER_NAME: u16 = 0;
const PRE_SHARED_KEY: u16 = 41;
const SUPPORTED_VERSIONS: u16 = 43;
/// The first octets of the `random` of a `HelloRetryRequest` (RFC 8446, section 4.1.3).
const RETRY: [u8; 8] = [0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11];
const SESSION_LEN_MAX: usize = 32;
const NAME_LEN_MAX: usize = 253;
const FIELD_LEN_MAX: usize = 34;

/// A parsed message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message {
    ClientHello(Hello, Option<Box<str>>),
    ServerHello(Hello),
    Certificate,
    Other,
}

/// The relevant fields of a hello.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) version: u16,
    pub(crate) session: Session,
    pub(crate) has_psk: bool,
    pub(crate) is_retry: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Session {
    id: [u8; SESSION_LEN_MAX],
    pub(crate) len: u8,
}

/// The parser of one direction's messages.
#[derive(Debug)]
pub(crate) struct Messages {
    step: NextField,
    field: [u8; FIELD_LEN_MAX],
    have: u8,
    kind: u8,
    /// Octets left of the message, and octets to skip before the next field.
    left: u32,
    skip: u32,
    hello: Hello,
    name: Vec<u8>,
}

/// The field to read next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextField {
    /// Message type and length.
    Head,
    /// Version and random.
    Front,
    SessionLen,
    Session(u8),
    /// The client's hello: lengths of its lists.
    SuitesLen,
    CompressionsLen,
    /// The server's hello: the selected cipher suite and compression.
    Choice,
    ExtensionsLen,
    Extension,
    /// The version that the server selected.
    Version,
    /// Lengths and type in front of a server name.
    NameHead,
    Name(u8),
    /// The rest of the message, which is skipped.
    Rest,
    /// Octets are missing.
    Lost,
}

impl Messages {
    pub(crate) const fn new() -> Self {
        Self {
            step: NextField::Head,
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

    /// Octets are missing, so the bounds of later messages are unknown.
    pub(crate) fn lose(&mut self) {
        self.step = NextField::Lost;
        self.name = Vec::new();
    }

    /// The next complete message. Consumes its octets; `None` if it has consumed all.
    pub(crate) fn next(&mut self, bytes: &mut &[u8]) -> Option<Message> {
        loop {
            if self.step == NextField::Lost {
                *bytes = &[];
                return None;
            }
            if self.step != NextField::Head && self.left == 0 {
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

    /// Reads on in the current field, and goes to the next one when it is complete.
    fn read(&mut self, bytes: &mut &[u8]) {
        if let NextField::Name(len) = self.step {
            let taken = (usize::from(len) - self.name.len()).min(bytes.len());
            self.name.extend_from_slice(&bytes[..taken]);
            *bytes = &bytes[taken..];
            self.left -= taken as u32;
            if self.name.len() == usize::from(len) {
                self.step = NextField::Rest;
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
        if self.step != NextField::Head {
            self.left -= taken as u32;
        }
        if usize::from(self.have) == want {
            self.have = 0;
            self.step = self.take();
            // A field does not exist if the message is too short for it.
            if self.left < self.skip || self.step.least() > self.left - self.skip {
                (self.step, self.skip) = (NextField::Rest, self.left);
            }
        }
    }

    /// Takes a complete field, and returns the next one.
    fn take(&mut self) -> NextField {
        let u16_at = |at: usize| u16::from_be_bytes([self.field[at], self.field[at + 1]]);
        match self.step {
            NextField::Head => {
                self.kind = self.field[0];
                self.left = u32::from_be_bytes([0, self.field[1], self.field[2], self.field[3]]);
                self.hello = Hello::default();
                self.name = Vec::new();
                if self.kind == CLIENT_HELLO || self.kind == SERVER_HELLO {
                    return NextField::Front;
                }
                self.rest()
            }
            NextField::Front => {
                self.hello.version = u16_at(0);
                self.hello.is_retry = self.field[2..10] == RETRY;
                NextField::SessionLen
            }
            NextField::SessionLen => match self.field[0] {
                0 => self.behind_session(),
                len if usize::from(len) <= SESSION_LEN_MAX => NextField::Session(len),
                _ => self.rest(),
            },
            NextField::Session(len) => {
                self.hello.session.id[..len.into()].copy_from_slice(&self.field[..len.into()]);
                self.hello.session.len = len;
                self.behind_session()
            }
            NextField::SuitesLen => {
                self.skip = u16_at(0).into();
                NextField::CompressionsLen
            }
            NextField::CompressionsLen => {
                self.skip = self.field[0].into();
                NextField::ExtensionsLen
            }
            NextField::Choice => NextField::ExtensionsLen,
            NextField::ExtensionsLen => NextField::Extension,
            NextField::Extension => self.take_extension(u16_at(0), u16_at(2)),
            NextField::Version => {
                self.hello.version = u16_at(0);
                NextField::Extension
            }
            NextField::NameHead => {
                let len = u16_at(3);
                if self.field[2] == 0 && 0 < len && usize::from(len) <= NAME_LEN_MAX {
                    return NextField::Name(len as u8);
                }
                self.rest()
            }
            NextField::Name(_) | NextField::Rest | NextField::Lost => self.rest(),
        }
    }

    fn take_extension(&mut self, kind: u16, len: u16) -> NextField {
        let is_client = self.kind == CLIENT_HELLO;
        match kind {
            SERVER_NAME if is_client && len >= 5 => return NextField::NameHead,
            SUPPORTED_VERSIONS if !is_client && len == 2 => return NextField::Version,
            PRE_SHARED_KEY => self.hello.has_psk = true,
            _ => {}
        }
        self.skip = len.into();
        NextField::Extension
    }

    fn behind_session(&self) -> NextField {
        if self.kind == CLIENT_HELLO { NextField::SuitesLen } else { NextField::Choice }
    }

    fn rest(&mut self) -> NextField {
        self.skip = self.left;
        NextField::Rest
    }

    fn finish(&mut self) -> Message {
        self.step = NextField::Head;
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

impl NextField {
    /// Length of the field in octets.
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

    /// How many octets the message has to have left for this field.
    const fn least(self) -> u32 {
        self.len() as u32
    }
}

/// A valid host name, in lower case.
fn host_name(name: &[u8]) -> Option<Box<str>> {
    let name = str::from_utf8(name).ok()?;
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
    is_name.then(|| name.to_ascii_lowercase().into_boxed_str())
}
