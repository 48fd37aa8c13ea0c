//! The capabilities of a node's process (capabilities(7)).
//!
//! | capability | kept | for |
//! | --- | --- | --- |
//! | `CAP_NET_BIND_SERVICE` | always | listeners below port 1024 that a reload adds |
//! | `CAP_DAC_OVERRIDE` | always | files of other owners at a reload: certificates, keys, access logs |
//! | `CAP_DAC_READ_SEARCH` | without the one before | the same files, to read them |
//! | `CAP_SYS_RESOURCE` | by dispatchers | pipes for splice(2) beyond `fs.pipe-user-pages-soft` |
//! | `CAP_NET_ADMIN`, `CAP_NET_RAW` | with service addresses | interfaces, packet filters, ARP, `TCP_REPAIR` |
//! | `CAP_BPF` | with addresses that several dispatchers have | the steering program |
//! | `CAP_SYS_ADMIN` | the same, without the one before | the same |
//!
//! The bounding set stays. So programs that a node starts as root have all capabilities of root: `notify`, and the new
//! process in an upgrade, which drops those that its own configuration does not need.

use std::io;

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// What a node does that takes capabilities.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Needs {
    pub(crate) dispatcher: bool,
    /// It has service addresses, of either kind.
    pub(crate) addresses: bool,
    /// It has addresses together with other dispatchers.
    pub(crate) multipath: bool,
}

/// Drops all capabilities of this thread that the node does not need. No other thread may be running yet.
pub(crate) fn drop_others(needs: Needs) -> io::Result<()> {
    let present = capabilities(None)?;
    let kept = needs.of(present.permitted);
    let next = CapabilitySets {
        effective: present.effective & kept,
        permitted: present.permitted & kept,
        // The kernel takes what is not inheritable out of the ambient set.
        inheritable: present.inheritable & kept,
    };
    // A filter of system calls may forbid the call to a node that has nothing to drop.
    if next == present {
        return Ok(());
    }
    set_capabilities(None, next).map_err(io::Error::from)
}

impl Needs {
    fn of(self, permitted: CapabilitySet) -> CapabilitySet {
        let mut needed = CapabilitySet::NET_BIND_SERVICE | CapabilitySet::DAC_OVERRIDE;
        if !permitted.contains(CapabilitySet::DAC_OVERRIDE) {
            needed |= CapabilitySet::DAC_READ_SEARCH;
        }
        if self.dispatcher {
            needed |= CapabilitySet::SYS_RESOURCE;
        }
        if self.addresses {
            needed |= CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW;
        }
        if self.multipath {
            let has_bpf = permitted.contains(CapabilitySet::BPF);
            needed |= if has_bpf { CapabilitySet::BPF } else { CapabilitySet::SYS_ADMIN };
        }
        needed
    }
}
