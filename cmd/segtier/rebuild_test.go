package main

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const checkpoint = "../../testdata/checkpoints/log-start-offset-checkpoint"

// TestRebuildCommand: the whole tier of real partitions, its metadata lost: every
// record, and every byte of every fetch, is what it was.
func TestRebuildCommand(t *testing.T) {
	dirs := allSources(t)
	b := copied(t, dirs...)
	records := b.done("ls", "--json")
	if err := os.Remove(b.meta); err != nil {
		t.Fatal(err)
	}
	o := b.want(statusDone, "rebuild", "--json")
	if _, err := os.Stat(b.meta); !errors.Is(err, os.ErrNotExist) || !strings.Contains(o.msg, "--apply") {
		t.Errorf("without --apply there is metadata: %v; %s", err, o.msg)
	}
	segments := strings.Count(records, "\n")
	for _, l := range decode[restoredLine](t, o.out) {
		if l.Reason != "REBUILT" {
			t.Errorf("%+v", l)
		}
	}
	if n := strings.Count(o.out, "\n"); n != segments {
		t.Errorf("%d lines for %d segments", n, segments)
	}
	o = b.want(statusDone, "rebuild", "--apply", "--rate", "10GiB", "--parallel", "3")
	if strings.Count(o.out, "REBUILT") != segments {
		t.Errorf("%s%s", o.out, o.msg)
	}
	if got := b.done("ls", "--json"); got != records {
		t.Errorf("records are\n%s\nwant\n%s", got, records)
	}
	for _, dir := range dirs {
		equalsLog(t, b, oracleOf(t, dir))
	}
	b.done("verify")
	b.done("gc")
	if out := b.done("copy", source(payments)); strings.Contains(out, "copied  ") {
		t.Errorf("copied again: %s", out)
	}
	b.want(statusFailed, "rebuild", "--apply").oneError(t, "not empty")
}

// TestRebuildLogStarts: what lies below the log start that a broker has on disk is
// not made readable.
func TestRebuildLogStarts(t *testing.T) {
	dir := source("audit.trimmed-start_1-0")
	b := copied(t, dir)
	starts := filepath.Join(b.dir, "checkpoint")
	o := oracleOf(t, dir)
	if err := os.WriteFile(starts, []byte("0\n1\naudit.trimmed-start_1 0 "+itoa(o.bases[1])+"\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(b.meta); err != nil {
		t.Fatal(err)
	}
	out := b.done("rebuild", "--apply", "--log-starts", starts)
	if strings.Count(out, "LEFT_DELETED") != 1 {
		t.Errorf("%s", out)
	}
	b.want(statusNotInTier, "fetch", o.name, itoa(o.bases[0]))
	b.done("fetch", o.name, itoa(o.bases[1]), "--format", "raw")

	if _, err := readLogStarts(checkpoint); err != nil {
		t.Error(err)
	}
	for _, junk := range []string{"", "1\n0\n", "0\nx\n", "0\n1\n", "0\n1\na b c\n", "0\n1\na 0 -1\n", "0\n1\na 0\n"} {
		if got, err := parseLogStarts(bufio.NewScanner(strings.NewReader(junk))); err == nil {
			t.Errorf("%q: %v", junk, got)
		}
	}
}

// TestRebuildDamage: what cannot be confirmed is left, told, and the exit status
// says so; the rest is readable.
func TestRebuildDamage(t *testing.T) {
	b := copied(t, source(payments), source(sensors))
	damaged := objectOf(t, b, "payments.tx_commit-abort/0", 3)
	damages()["flipped bit in the first batch"](t, filepath.Join(b.store, filepath.FromSlash(damaged)))
	if err := os.Remove(b.meta); err != nil {
		t.Fatal(err)
	}
	o := b.want(statusDamage, "rebuild", "--apply")
	if !strings.Contains(o.out, "LEFT_DAMAGED  "+damaged) || !strings.Contains(o.msg, "1 damaged") {
		t.Errorf("%s%s", o.out, o.msg)
	}
	equalsLog(t, b, oracleOf(t, source(sensors)))
	b.want(statusUsage, "rebuild", "--parallel", "-1")
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
