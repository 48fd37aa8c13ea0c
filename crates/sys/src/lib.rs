//! System calls of Watari: TCP options, accept loops, threads, turns on them and their CPU time, pipes for splice(2),
//! descriptors for another process, return of memory, BPF.

mod accept;
pub mod bpf;
mod cpu_time;
mod descriptors;
mod memory;
mod pipe;
pub mod tcp;
mod threads;
mod turns;
mod unidentified;

pub use accept::{Acceptor, accept_until};
pub use cpu_time::thread_cpu_time;
pub use descriptors::{DESCRIPTORS_MAX, DescriptorStream};
pub use memory::{build_runtime, return_memory};
pub use pipe::{FILES_PER_PIPE, Pipe};
pub use threads::Threads;
pub use turns::Turn;
pub use unidentified::{CrowdedOut, Unidentified, UnidentifiedPlace};
pub use watari_admission::UnidentifiedLimits;
