//go:build !linux

package gateway

import "syscall"

// diesWithParent is nothing here: a test that is killed leaves the child.
func diesWithParent() *syscall.SysProcAttr { return nil }
