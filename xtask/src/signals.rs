//! Stopping a server that we started: whatever ends us ends it too, and once.
//!
//! The standard library has no signal handling, so three functions of libc are declared here. The
//! server gets a process group of its own and every signal from us, the terminal's Ctrl-C too:
//! a signal arrives once, whether it was sent to us alone or to our whole group.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

const SIGHUP: i32 = 1;
const SIGINT: i32 = 2;
const SIGTERM: i32 = 15;

/// The process group of the server, 0 while there is none.
static SERVER: AtomicI32 = AtomicI32::new(0);
static ASKED_TO_STOP: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    fn signal(number: i32, handler: extern "C" fn(i32)) -> usize;
    fn kill(process: i32, number: i32) -> i32;
    #[cfg(target_os = "linux")]
    fn prctl(option: i32, ...) -> i32;
}

/// Passes a signal on. Only atomics and `kill`, which a handler may use.
extern "C" fn pass_on(number: i32) {
    ASKED_TO_STOP.store(true, Ordering::SeqCst);
    let group = SERVER.load(Ordering::SeqCst);
    if group > 0 {
        // SAFETY: plain system call without pointers.
        unsafe { kill(-group, number) };
    }
}

/// Starts a server that gets our signals from now on.
pub fn start(server: &mut Command) -> io::Result<Child> {
    server.process_group(0);
    #[cfg(target_os = "linux")]
    {
        const PR_SET_PDEATHSIG: i32 = 1;
        // SAFETY: the closure makes one system call and touches no memory. It covers our end by
        // SIGKILL, after which nobody is left to pass anything on.
        unsafe {
            server.pre_exec(|| {
                prctl(PR_SET_PDEATHSIG, SIGTERM as std::ffi::c_ulong);
                Ok(())
            });
        }
    }
    let child = server.spawn()?;
    SERVER.store(child.id() as i32, Ordering::SeqCst);
    for number in [SIGHUP, SIGINT, SIGTERM] {
        // SAFETY: the handler is an `extern "C"` function and safe to run at any time.
        unsafe { signal(number, pass_on) };
    }
    Ok(child)
}

/// Waits for the server's end; true when it is the end that somebody asked for.
pub fn wait(mut server: Child) -> io::Result<(bool, ExitStatus)> {
    let status = server.wait()?;
    SERVER.store(0, Ordering::SeqCst);
    Ok((ASKED_TO_STOP.load(Ordering::SeqCst), status))
}
