package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/segtier/segtier/testdata"
)

func (a *app) demoCommand() *cobra.Command {
	var keep, record string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show the main job on bundled Kafka segments, and check it",
		Long: `demo takes partition directories that an Apache Kafka broker wrote, copies their
closed segments to a store of files, lists them, reads them back by offset and by
time, compares every byte with the broker's files, and verifies the store. Then
it damages a copy of the store and shows that damage is found and never served.

Each step is the command that is shown, with its real output. Any difference
makes demo fail. It works in a temporary directory, or in --dir, which it keeps.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.store != "" || a.meta != "" || a.json {
				return usagef("demo makes its own store and metadata, and shows text: --store, --meta and --json are not for it")
			}
			return a.recorded(record, func() error { return a.demo(cmd.Context(), keep) })
		},
	}
	cmd.Flags().StringVar(&record, "record", "", "write a trace of the fetches to `FILE`, for 'segtier replay'")
	cmd.Flags().StringVar(&keep, "dir", "", "work in `DIR`, which must be empty or not exist, and keep it")
	return cmd
}

func (a *app) demo(ctx context.Context, keep string) (err error) {
	dir, err := demoDir(keep)
	if err != nil {
		return err
	}
	if keep == "" {
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	d := &demo{ctx: ctx, a: a, dir: dir}
	if err := d.run(); err != nil {
		return fmt.Errorf("demo, step %d: %w", d.step, err)
	}
	if keep == "" {
		d.sayf("Run 'segtier demo --dir DIR' to keep the files and try the commands yourself.")
	} else {
		d.sayf("The files are kept in %s; the commands above work as they are shown.", dir)
	}
	return d.failed
}

// demoDir makes the directory to work in.
func demoDir(keep string) (string, error) {
	if keep == "" {
		return os.MkdirTemp("", "segtier-demo-")
	}
	dir, err := filepath.Abs(keep)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", err
	}
	entries, err := os.ReadDir(dir)
	if err == nil && len(entries) > 0 {
		err = fmt.Errorf("--dir %s is not empty: name an empty or a new directory", dir)
	}
	return dir, err
}

// demo is one run of the demonstration. Its steps run the command itself, in
// this process, and judge what it wrote.
type demo struct {
	ctx  context.Context //nolint:containedctx // a demo lives as long as one call of run
	a    *app
	dir  string
	step int

	failed     error // of writing to stdout
	partitions []*oracle
}

func (d *demo) run() error {
	steps := []func() error{d.unpack, d.copy, d.copyAgain, d.list, d.fetchOffset, d.compareAll, d.fetchTime, d.explain, d.verify, d.damage}
	for _, step := range steps {
		if err := d.ctx.Err(); err != nil {
			return err
		}
		if err := step(); err != nil {
			return err
		}
	}
	d.sayf("\nAll of it was checked: what came back is what the broker wrote.")
	return nil
}

// title begins a step.
func (d *demo) title(text string) {
	d.step++
	d.sayf("\n%d. %s\n", d.step, text)
}

// sayf writes a line.
func (d *demo) sayf(format string, args ...any) {
	_, err := fmt.Fprintf(d.a.stdout, format+"\n", args...)
	d.failed = errors.Join(d.failed, err)
}

// provesf says what a step has shown.
func (d *demo) provesf(format string, args ...any) { d.sayf("   ok: "+format, args...) }

func (d *demo) storePath() string { return filepath.Join(d.dir, "store") }

func (d *demo) getenv(name string) string {
	switch name {
	case "SEGTIER_STORE":
		return fileURL(d.storePath())
	case "SEGTIER_META":
		return fileURL(filepath.Join(d.dir, "metadata.db"))
	}
	return ""
}

// quiet runs a command without showing it.
func (d *demo) quiet(want int, args ...string) (stdout, stderr []byte, err error) {
	var out, msg bytes.Buffer
	a := &app{stdout: &out, stderr: &msg, getenv: d.getenv, tune: d.a.tune}
	if got := a.run(d.ctx, args); got != want {
		err = fmt.Errorf("'segtier %s' ended with status %d, not %d: %s", strings.Join(args, " "), got, want, strings.TrimSpace(msg.String()))
	}
	return out.Bytes(), msg.Bytes(), err
}

// shown runs a command and shows it with what it writes.
func (d *demo) shown(want int, args ...string) (stdout, stderr []byte, err error) {
	d.showCommand(args)
	stdout, stderr, err = d.quiet(want, args...)
	d.show(stdout, args[0] == "verify" || args[0] == "explain")
	d.show(stderr, true)
	if err == nil && want != statusDone {
		d.sayf("   (exit status %d)", want)
	}
	return stdout, stderr, err
}

func (d *demo) showCommand(args []string) {
	var quoted []string
	for _, arg := range args {
		quoted = append(quoted, shellWord(arg))
	}
	d.sayf("   $ segtier %s", strings.Join(quoted, " "))
}

// shellWord quotes an argument for a shell where it needs that.
func shellWord(s string) string {
	plain := func(r rune) bool {
		return r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_./:=%+,@", r))
	}
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !plain(r) }) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// What is shown of an output at most.
const (
	maxShownLines   = 11
	maxShownColumns = 112
)

// show shows the first lines of an output. Of a wide table the beginning tells
// enough; a message is shown whole.
func (d *demo) show(output []byte, whole bool) {
	text := strings.TrimRight(string(output), "\n")
	if text == "" {
		return
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if i == maxShownLines && len(lines) > maxShownLines+1 {
			d.sayf("   | … %d more lines", len(lines)-i)
			return
		}
		line = strings.TrimRight(line, " ")
		if runes := []rune(line); len(runes) > maxShownColumns && !whole {
			line = string(runes[:maxShownColumns-1]) + "…"
		}
		d.sayf("   | %s", line)
	}
}

// unpack writes the bundled segments where a broker would have them.
func (d *demo) unpack() error {
	d.title("Partition directories as an Apache Kafka broker left them")
	source := filepath.Join(d.dir, "kafka")
	if err := os.CopyFS(source, testdata.Demo()); err != nil {
		return err
	}
	entries, err := os.ReadDir(source)
	if err != nil {
		return err
	}
	for _, e := range entries {
		o, err := readOracle(filepath.Join(source, e.Name()))
		if err != nil {
			return err
		}
		d.partitions = append(d.partitions, o)
		d.sayf("   %s: %s closed (%s of log, offsets %d to %d), one active",
			o.path, plural(len(o.bases), "segment"), sizeText(int64(len(o.log))), o.bases[0], o.end)
	}
	if len(d.partitions) == 0 {
		return errors.New("this build has no bundled segments")
	}
	d.sayf("\n   $ export SEGTIER_STORE=%s", d.getenv("SEGTIER_STORE"))
	d.sayf("   $ export SEGTIER_META=%s", d.getenv("SEGTIER_META"))
	return nil
}

func (d *demo) copyArgs() []string {
	args := []string{"copy"}
	for _, o := range d.partitions {
		args = append(args, o.path)
	}
	return args
}

func (d *demo) segments() (n int) {
	for _, o := range d.partitions {
		n += len(o.bases)
	}
	return n
}

func (d *demo) copy() error {
	d.title("Copy the closed segments to the store")
	out, _, err := d.shown(statusDone, d.copyArgs()...)
	if err != nil {
		return err
	}
	if got := bytes.Count(out, []byte("copied  ")); got != d.segments() {
		return fmt.Errorf("%d segments were copied, not %d", got, d.segments())
	}
	d.provesf("each segment is one object, written, synced and read back before metadata calls it readable")
	return nil
}

func (d *demo) copyAgain() error {
	d.title("Copy once more")
	before, err := treeOf(d.storePath())
	if err != nil {
		return err
	}
	out, messages, err := d.quiet(statusDone, d.copyArgs()...)
	if err != nil {
		return err
	}
	d.showCommand(d.copyArgs())
	d.show(messages, true)
	after, err := treeOf(d.storePath())
	if err != nil {
		return err
	}
	if got := bytes.Count(out, []byte("exists  ")); got != d.segments() || before != after {
		return fmt.Errorf("%d segments were found in the tier, not %d, or the store changed", got, d.segments())
	}
	d.provesf("it is a no-op: copying can be stopped and repeated at any time")
	return nil
}

// treeOf describes the files under a directory: names, sizes and times.
func treeOf(root string) (string, error) {
	var b strings.Builder
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		fi, err := e.Info()
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(&b, path, fi.Size(), fi.ModTime().UnixNano())
		return err
	})
	return b.String(), err
}

func (d *demo) list() error {
	d.title("List them")
	for _, o := range d.partitions {
		out, _, err := d.shown(statusDone, "ls", o.name)
		if err != nil {
			return err
		}
		if got := bytes.Count(out, []byte("COPY_SEGMENT_FINISHED")); got != len(o.bases) {
			return fmt.Errorf("%s: %d segments are listed as readable, not %d", o.name, got, len(o.bases))
		}
	}
	d.provesf("metadata alone knows what is readable; the store was not listed")
	return nil
}

func (d *demo) fetchOffset() error {
	d.title("Fetch by offset")
	o := d.partitions[0]
	b := o.batches[len(o.batches)/2]
	offset := b.header.LastOffset
	if _, _, err := d.shown(statusDone, "fetch", o.name, fmt.Sprint(offset), "--max-bytes", "1"); err != nil {
		return err
	}
	raw, _, err := d.quiet(statusDone, "fetch", o.name, fmt.Sprint(offset), "--max-bytes", "1", "--format", "raw")
	if err != nil {
		return err
	}
	if !bytes.Equal(raw, b.raw) {
		return fmt.Errorf("%s: the batch of offset %d differs from the broker's", o.name, offset)
	}
	d.provesf("the whole batch that holds offset %d (%d to %d), as the broker wrote it", offset, b.header.BaseOffset, b.header.LastOffset)
	return nil
}

func (d *demo) compareAll() error {
	d.title("Fetch everything and compare it with the broker's files")
	var total int
	for _, o := range d.partitions {
		file := filepath.Join(d.dir, filepath.Base(o.path)+".log")
		args := []string{"fetch", o.name, earliest, "--max-bytes", "64MiB", "--format", "raw", "--out", file}
		if _, _, err := d.shown(statusDone, args...); err != nil {
			return err
		}
		got, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if !bytes.Equal(got, o.log) {
			return fmt.Errorf("%s: %d bytes came back, they differ from the %d bytes of the log files", o.name, len(got), len(o.log))
		}
		total += len(got)
	}
	d.provesf("all %d bytes of %s are identical", total, plural(d.segments(), "log file"))
	return nil
}

func (d *demo) fetchTime() error {
	d.title("Find an offset by time")
	o := d.partitions[len(d.partitions)-1]
	at := o.middleTime() + 1
	want := o.firstAtOrAfter(at)
	out, _, err := d.shown(statusDone, "offset", o.name, timeText(at))
	if err != nil {
		return err
	}
	if got := strings.TrimSpace(string(out)); got != fmt.Sprint(want) {
		return fmt.Errorf("%s: offset %s was found for %s, a scan of all records finds %d", o.name, got, timeText(at), want)
	}
	d.provesf("a scan of every record of the partition gives the same offset")
	return nil
}

func (d *demo) explain() error {
	d.title("Explain how an offset is found")
	o := d.partitions[0]
	out, _, err := d.shown(statusDone, "explain", o.name, fmt.Sprint(o.batches[len(o.batches)/2].header.LastOffset))
	if err == nil && !bytes.Contains(out, []byte(".seg")) {
		err = fmt.Errorf("%s: explain names no object", o.name)
	}
	return err
}

func (d *demo) verify() error {
	d.title("Verify every byte in the store")
	_, _, err := d.shown(statusDone, "verify")
	if err == nil {
		d.provesf("every byte, every batch and every header is what was copied")
	}
	return err
}

func (d *demo) damage() error {
	d.title("Damage a copy of the store: flip one bit of one object")
	damaged := filepath.Join(d.dir, "damaged-store")
	if err := os.CopyFS(damaged, os.DirFS(d.storePath())); err != nil {
		return err
	}
	o := d.partitions[0]
	object, err := firstObject(damaged, o.topic)
	if err != nil {
		return err
	}
	at := int64(len(o.batches[0].raw) / 2)
	if err := flipBit(filepath.Join(damaged, filepath.FromSlash(object)), at); err != nil {
		return err
	}
	d.sayf("   byte %d of %s\n", at, object)
	store := []string{"--store", fileURL(damaged)}
	out, messages, err := d.shown(statusFailed, append([]string{"fetch", o.name, earliest}, store...)...)
	if err != nil {
		return err
	}
	if len(out) > 0 || !bytes.Contains(messages, []byte(object)) {
		return errors.New("fetch gave data from the damaged object, or did not name it")
	}
	d.provesf("not one wrong byte is served; the error names object and range\n")
	out, _, err = d.shown(statusDamage, append([]string{"verify"}, store...)...)
	if err != nil {
		return err
	}
	if n := bytes.Count(out, []byte("\n")); n != 1 || !bytes.Contains(out, []byte(object)) {
		return fmt.Errorf("verify made %d findings, not the one", n)
	}
	d.provesf("verify finds it, names it, and exits with a status of its own")
	return nil
}

// firstObject returns the key of a topic's first object in a store of files.
func firstObject(root, topic string) (key string, err error) {
	err = fs.WalkDir(os.DirFS(root), topic, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && strings.HasSuffix(path, ".seg") {
			key, err = path, fs.SkipAll
		}
		return err
	})
	if err == nil && key == "" {
		err = fmt.Errorf("topic %s has no object in %s", topic, root)
	}
	return key, err
}

// flipBit changes one bit of a file.
func flipBit(path string, at int64) (err error) {
	if err := os.Chmod(path, 0o600); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b := make([]byte, 1)
	if _, err := io.ReadFull(io.NewSectionReader(f, at, 1), b); err != nil {
		return err
	}
	b[0] ^= 1
	_, err = f.WriteAt(b, at)
	return err
}
