package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/segtier/segtier"
)

// app is one run of the command.
type app struct {
	stdout, stderr io.Writer
	getenv         func(string) string
	terminal       bool // stderr is a terminal: progress may be shown
	accepted       bool // the command line was understood; errors after that are not of usage

	store, meta   string // URLs as given by flags, "" if not given
	json, verbose bool

	tune func(*segtier.Options) // has the last word on a Tier's options; may be nil
}

// run runs the command with the arguments after its name and returns its exit
// status. It is the whole program: it uses nothing of the process but the
// working directory and what it is given.
func run(ctx context.Context, args []string, stdout, stderr io.Writer, getenv func(string) string) int {
	return (&app{stdout: stdout, stderr: stderr, getenv: getenv}).run(ctx, args)
}

func (a *app) run(ctx context.Context, args []string) int {
	a.terminal = isTerminal(a.stderr)
	root := a.rootCommand()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	return a.report(ctx, cmd, err)
}

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "segtier",
		Short: "Move closed Kafka log segments to an object store and read them back",
		Long: `segtier moves closed Kafka log segments to an object store, proves that they
are durable, and reads them back by offset or by time.

Stores and metadata are URLs: file:///dir, or file:dir for a relative path; a
store may be s3://bucket/prefix?region=…, with credentials from the AWS default
chain. Only copy creates what is not there. Try 'segtier demo' first.

Exit status: 0 done, 1 failed, 2 wrong usage, 3 verify found damage, 4 the
offset, or the whole partition, is not in the tier.`,
		Version: versionInfo().String(),

		DisableFlagsInUseLine: true,

		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(*cobra.Command, []string) error {
			return usagef("a command is missing")
		},
		// Runs once flags and arguments were accepted, before every command,
		// cobra's own included.
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range []string{"store", "meta"} {
				// An unset variable in a script must not mean the default.
				if f := cmd.Flag(name); f != nil && f.Changed && f.Value.String() == "" {
					return usagef("--%s is empty; leave it out for the default, or name a URL", name)
				}
			}
			a.accepted = true
			return nil
		},
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if better := negative(cmd.Name(), err); better != nil {
			return better
		}
		return err
	})
	root.SetOut(a.stdout) // before the completion command is made, which keeps it
	root.SetErr(a.stderr)
	root.SetVersionTemplate("segtier {{.Version}}\n")
	flags := root.PersistentFlags()
	flags.StringVar(&a.store, "store", "", "`URL` of the object store (SEGTIER_STORE; default "+defaultStore+")")
	flags.StringVar(&a.meta, "meta", "", "`URL` of the metadata (SEGTIER_META; default "+defaultMeta+")")
	flags.BoolVar(&a.json, "json", false, "write JSON lines to stdout")
	flags.BoolVarP(&a.verbose, "verbose", "v", false, "log what is done to stderr")

	root.AddCommand(a.demoCommand(), a.copyCommand(), a.lsCommand(), a.fetchCommand(), a.offsetCommand(),
		a.explainCommand(), a.verifyCommand(), a.expireCommand(), a.rmCommand(), a.gcCommand(), a.rebuildCommand(), a.metaCommand(), a.replayCommand(), a.versionCommand())
	root.InitDefaultCompletionCmd("")
	if completion, _, err := root.Find([]string{"completion"}); err == nil && completion != root {
		// cobra would print its help and succeed.
		completion.RunE = func(*cobra.Command, []string) error {
			return usagef("a shell is missing: bash, zsh, fish or powershell")
		}
	}
	return root
}

// report tells the user what went wrong, once, and returns the exit status.
func (a *app) report(ctx context.Context, cmd *cobra.Command, err error) int {
	if err == nil {
		return statusDone
	}
	status := a.statusOf(err)
	if errors.Is(err, errTold) {
		return status
	}
	if ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))) {
		a.messagef("segtier: interrupted; the same command may be run again")
		return status
	}
	a.tell(err)
	if status == statusUsage {
		usage := cmd.UseLine()
		if cmd.HasAvailableSubCommands() {
			usage = cmd.CommandPath() + " COMMAND"
		}
		a.messagef("  usage: %s; '%s --help' has the rest", usage, cmd.CommandPath())
	}
	return status
}

// tell writes an error to stderr, with the next step if it is known.
func (a *app) tell(err error) {
	a.messagef("segtier: %v", err)
	if next := nextStep(err); next != "" {
		a.messagef("  next: %s", next)
	}
}

// messagef writes one line of message to stderr.
func (a *app) messagef(format string, args ...any) {
	_, _ = fmt.Fprintf(a.stderr, format+"\n", args...) // there is nowhere else to say it
}

// logger is silent unless --verbose was given.
func (a *app) logger() *slog.Logger {
	if !a.verbose {
		return nil
	}
	return slog.New(slog.NewTextHandler(a.stderr, nil))
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
