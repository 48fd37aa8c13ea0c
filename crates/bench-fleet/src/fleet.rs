//! Where a load is generated: by threads of this process, by several processes of this machine, or by workers on other
//! machines.
//!
//! Imports: `worker` for the links to workers. `running` uses `away` if there are workers, and `away` the rest.

mod attend;
mod away;
mod crew;
mod definition;
mod logging;
mod machines;
mod results;
mod running;

pub use definition::Fleet;
pub use machines::{ChooseError, Chosen, Machines};
pub use results::{Finished, LostError, StartError, Taken, Worked};
pub use running::Running;
