//! Interactive flows: requests that depend on earlier responses (the open point of anma-enma, section 5).
//!
//! ```toml
//! cookies = true                       # kept by each user; the default
//!
//! [values]                             # initial values; ${user}, the number of the run, is built in
//! language = "en"
//!
//! [[step]]
//! name = "form"                        # a class of URIs in all reports
//! uri = "/order?lang=${language}"      # relative to the command's URL
//! take.token = { regex = 'name="csrf" value="([^"]+)"' }
//!
//! [[step]]
//! name = "confirm"
//! think = { shares = ["5s", "10s", "30s", "60s"] }
//! method = "POST"
//! uri = "/order"
//! headers = { content-type = "application/x-www-form-urlencoded" }
//! body = "token=${token|url}"
//! expect = 303
//! take.place = { header = "location" }
//!
//! [[step]]
//! name = "done"
//! uri = "${place}"
//! ```
//!
//! * `method`: `GET`, or `POST` if there is a body. `headers`: fields of the request.
//! * `body` is text with placeholders for values. `body_file` is a file that is sent as it is. Its path is relative to
//!   the flow's file.
//! * `expect`: a status, or a list of them. By default every status below 400 is right. Redirects are not followed: a
//!   step may take `location` and the next step request it, as above.
//! * `take.NAME`: a value that later steps use as `${NAME}`. Its source is a `header` or `cookie` of the response, or
//!   the first MiB of its body, by a `regex` (its first group) or a `json` pointer (RFC 6901).
//! * `think`: the time before the step, counted from the end of the response before it. It is fixed, `uniform` between
//!   two times, from a list in exactly equal `shares` of the users, or `exponential` with a mean.
//! * `repeat`: how often the step is done, with a think time before each. `probability`: the probability that the step
//!   is done at all.
//!
//! Placeholders: `${name}` as it is, `${name|url}` percent-encoded, `${name|json}` for the inside of a JSON string,
//! `$${` for a literal `${`. Names are resolved when the file is read. Values come from a server that may be hostile.
//! The run of a flow ends with [`EndingKind::Local`](crate::ending::EndingKind::Local) in three cases:
//!
//! * a value does not fit into a URI or a field;
//! * a value leads to another site;
//! * a value is missing in the response.
//!
//! [`Flow`] is the file, [`Walk`] one user's run of it.
//!
//! Imports: `duration` and `shares` for think times.

mod check;
mod cookies;
mod definition;
mod error;
mod names;
mod raw;
mod take;
mod template;
mod think;
mod walk;
pub mod wire;

pub use self::definition::{BODY_LOOKED_AT, Flow};
pub use self::error::{FlowError, Problem};
pub use self::names::{NameError, UnsetError};
pub use self::take::{Answer, Missing, SourceError};
pub use self::template::TemplateError;
pub use self::walk::{Failed, Outgoing, Turn, Unfit, Walk};

#[cfg(test)]
mod tests;
