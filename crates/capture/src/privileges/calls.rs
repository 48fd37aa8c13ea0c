//! Which system calls are forbidden: seccomp.
//!
//! A list of what is allowed would have to know what every library calls, and what the next version of it will. What is forbidden here
//! is what a process that was taken over would go on with: programs, other processes, and those parts of the kernel that only
//! administrators need, where most of its own mistakes have been found.

use std::collections::BTreeMap;
use std::env::consts::ARCH;

use nix::libc;
use rustix::thread::secure_computing_mode;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter,
};

/// Programs are run.
const PROGRAMS: [libc::c_long; 2] = [libc::SYS_execve, libc::SYS_execveat];

const NEVER: [libc::c_long; 46] = [
    // Other processes are looked into.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // The view of the system changes; namespaces also give capabilities within.
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
    // Code comes into the kernel.
    libc::SYS_bpf,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    // Parts of it that little but attacks has need of here.
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
    // The machine as a whole changes.
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

/// Forbids them, if the system can; says whether it can.
pub(super) fn forbid(programs: bool) -> Result<bool, seccompiler::Error> {
    let Ok(arch) = TargetArch::try_from(ARCH) else { return Ok(false) };
    if secure_computing_mode().is_err() {
        return Ok(false);
    }
    apply_filter(&refusals(programs, arch)?)?;
    apply_filter(&clone3(arch)?)?;
    Ok(true)
}

/// Each is answered as if a capability were missing.
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

/// Its flags lie where a filter cannot see them. Told that the kernel is too old for it, the C library uses `clone`.
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
