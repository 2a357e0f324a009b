package gateway

import "syscall"

// diesWithParent has the kernel kill the child when its parent dies.
func diesWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
