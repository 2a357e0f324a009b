//go:build !linux

package main

import "errors"

func pin(string) error { return errors.New("not on this platform") }
