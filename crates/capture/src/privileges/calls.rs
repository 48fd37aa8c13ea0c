//! Forbids system calls, with seccomp.
//!
//! A list of allowed calls would have to contain the calls of every library, and of its next version. So this is a list
//! of forbidden calls: those that an attacker would need who controls the process. They run programs, reach other
//! processes, or use parts of the kernel that only administrators need and that had most of its vulnerabilities.

use std::collections::BTreeMap;
use std::env::consts::ARCH;

use nix::libc;
use rustix::thread::secure_computing_mode;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter,
};

/// These run programs.
const PROGRAMS: [libc::c_long; 2] = [libc::SYS_execve, libc::SYS_execveat];

const NEVER: [libc::c_long; 46] = [
    // These access other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // These change the view of the system. Namespaces also give capabilities within them.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_chroot,
    libc::SYS_pivot_root,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_mount_setattr,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_open_by_handle_at,
    // These load code into the kernel.
    libc::SYS_bpf,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    // Parts of the kernel that this process does not need, and that attacks use.
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_vhangup,
    libc::SYS_personality,
    libc::SYS_lookup_dcookie,
    // These change the whole host.
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
];

/// Installs the filters. Returns whether the kernel has seccomp.
pub(super) fn forbid(programs: bool) -> Result<bool, seccompiler::Error> {
    let Ok(arch) = TargetArch::try_from(ARCH) else { return Ok(false) };
    if secure_computing_mode().is_err() {
        return Ok(false);
    }
    apply_filter(&refusals(programs, arch)?)?;
    apply_filter(&clone3(arch)?)?;
    Ok(true)
}

/// Each call fails with `EPERM`, as without a capability.
fn refusals(programs: bool, arch: TargetArch) -> Result<BpfProgram, seccompiler::Error> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = NEVER.iter().map(|call| (*call, Vec::new())).collect();
    if !programs {
        rules.extend(PROGRAMS.map(|call| (call, Vec::new())));
    }
    let user_namespace = libc::CLONE_NEWUSER as u64;
    let flags =
        SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(user_namespace), user_namespace)?;
    rules.insert(libc::SYS_clone, vec![SeccompRule::new(vec![flags])?]);
    filter(rules, libc::EPERM, arch)
}

/// A filter cannot see the flags of `clone3`. On `ENOSYS` the C library uses `clone`.
fn clone3(arch: TargetArch) -> Result<BpfProgram, seccompiler::Error> {
    filter(BTreeMap::from([(libc::SYS_clone3, Vec::new())]), libc::ENOSYS, arch)
}

fn filter(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    error: i32,
    arch: TargetArch,
) -> Result<BpfProgram, seccompiler::Error> {
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(error.cast_unsigned()), arch)?;
    Ok(filter.try_into()?)
}
