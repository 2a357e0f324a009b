package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/segtier/segtier"
	"github.com/segtier/segtier/audit"
	"github.com/segtier/segtier/segment"
)

// gcOptions are the flags of gc.
type gcOptions struct {
	apply, unknown, trust bool

	plan        string
	olderThan   time.Duration
	maxFraction float64
	fractionSet bool
}

func (a *app) gcCommand() *cobra.Command {
	var o gcOptions
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Find what no readable segment needs, and delete it",
		Long: `gc lists everything under the store's prefix and tells what no readable segment
needs: objects whose segment has ended, unfinished uploads, records of copies whose
writer is dead. It changes nothing unless --apply is given, and then deletes only
what metadata can prove ended; each thing is looked at again first.

Objects whose id no record knows stay, unless --unknown is given too, and even then
if they have offsets that are in no readable segment. Objects that are not segtier's
are listed and always stay. Ages are by the store's clock.

gc does nothing at all if metadata is not there, not whole, of another prefix, or
looks as if it had lost something: for example an older copy that was restored.
docs/operations.md says what to do then.

With --plan FILE, what may go is written to FILE; with --apply it is read from FILE,
and nothing else is deleted.

Reasons: ORPHAN_ENDED, UPLOAD_ENDED, RECORD_ABANDONED, RECORD_DELETING, PROBE_LEFT may go;
ORPHAN_UNKNOWN, UPLOAD_UNKNOWN with --unknown; ORPHAN_NEEDED, ORPHAN_MISPLACED,
RECORD_COMPLETE and FOREIGN_OBJECT stay.`,
		Example: `  segtier gc
  segtier gc --plan gc.json && segtier gc --plan gc.json --apply
  segtier gc --apply --unknown --older-than 240h --max-fraction 0.02`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.fractionSet = cmd.Flags().Changed("max-fraction")
			return a.gc(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.apply, "apply", false, "delete; without it nothing is changed")
	flags.BoolVar(&o.unknown, "unknown", false, "what no record knows may go too, if nothing readable needs it")
	flags.BoolVar(&o.trust, "trust-metadata", false, "metadata is right although it looks like an older copy; see docs/operations.md first")
	flags.StringVar(&o.plan, "plan", "", "write what may go to `FILE`; with --apply delete at most what is in it")
	flags.DurationVar(&o.olderThan, "older-than", 24*time.Hour, "`AGE` that what is deleted has at least, by the store's clock")
	flags.Float64Var(&o.maxFraction, "max-fraction", 0.1, "greatest `FRACTION` of all objects, and of their bytes, that is deleted; by default three objects always may go")
	return cmd
}

// orphanLine is what was found, as --json shows it.
type orphanLine struct {
	Reason      string       `json:"reason"`
	Action      string       `json:"action"` // kept, removable, removed
	Object      string       `json:"object"`
	UploadID    string       `json:"uploadId"`
	Topic       string       `json:"topic"`
	TopicID     segment.UUID `json:"topicId"`
	Partition   int32        `json:"partition"`
	SegmentID   segment.UUID `json:"segmentId"`
	StartOffset int64        `json:"startOffset"`
	SizeBytes   int64        `json:"sizeBytes"`
	AgeMillis   int64        `json:"ageMillis"` // -1: the store does not say
	Message     string       `json:"message"`   // why it stays, or what proves that it may go
}

func (o *gcOptions) options() (audit.OrphanOptions, error) {
	switch {
	case o.olderThan < 0:
		return audit.OrphanOptions{}, usagef("--older-than %v: write a time such as 48h, or 0", o.olderThan)
	case !(o.maxFraction > 0 && o.maxFraction <= 1):
		return audit.OrphanOptions{}, usagef("--max-fraction %v: write a fraction above 0, at most 1", o.maxFraction)
	case o.trust && !o.apply:
		return audit.OrphanOptions{}, usagef("--trust-metadata has a meaning with --apply only")
	}
	res := audit.OrphanOptions{Apply: o.apply, Unknown: o.unknown, TrustMetadata: o.trust, OlderThan: o.olderThan}
	if o.olderThan == 0 {
		res.OlderThan = -1
	}
	if o.fractionSet {
		res.MaxFraction = o.maxFraction
	}
	// A metadata file has one process that writes it, or some that read: this one
	// copies nothing, so no copy runs.
	res.Exclusive = true
	return res, nil
}

func (a *app) gc(ctx context.Context, o gcOptions) (err error) {
	options, err := o.options()
	if err != nil {
		return err
	}
	if o.apply && o.plan != "" {
		if options.Plan, err = readPlan(o.plan); err != nil {
			return err
		}
	}
	var tier *opened
	if o.apply {
		tier, err = a.openExisting(ctx, segtier.Options{})
	} else {
		tier, err = a.openReader(ctx)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tier.Close()) }()

	plan := audit.Plan{MetadataID: tier.meta.ID(), Items: []audit.PlanItem{}}
	bar := newProgress(a.stderr, a.terminal, -1, "looking for orphans")
	defer bar.clear()
	var printed error
	tell := func(f audit.Orphan, action string) {
		bar.clear()
		printed = errors.Join(printed, a.printOrphan(f, action))
	}
	options.Found = func(f audit.Orphan) {
		switch {
		case f.Kept != "":
			tell(f, "kept")
		case !o.apply:
			tell(f, "removable")
			plan.Items = append(plan.Items, f.Item())
		}
	}
	options.Removed = func(f audit.Orphan) { tell(f, "removed") }
	report, err := tier.Orphans(ctx, options)
	bar.clear()
	if printed != nil {
		return printed
	}
	a.tellOrphans(report, o)
	if err != nil {
		return err
	}
	if o.plan != "" && !o.apply {
		b, err := json.Marshal(plan)
		if err == nil {
			err = replaceFile(o.plan, append(b, '\n'))
		}
		if err != nil {
			return fmt.Errorf("plan %s: %w", o.plan, err)
		}
	}
	return nil
}

// tellOrphans sums up for people.
func (a *app) tellOrphans(r audit.OrphanReport, o gcOptions) {
	a.messagef("%s of segments (%s), %d needed by metadata, %d of others", plural(r.Objects, "object"), sizeText(r.Bytes), r.Live, r.Foreign)
	if o.apply {
		a.messagef("deleted: %s (%s), %s, %s; %d stay, %d had changed, %d failed", plural(r.Deleted, "object"), sizeText(r.DeletedBytes),
			plural(r.Aborted, "upload"), plural(r.Ended, "record"), r.Kept, r.Spared, r.Failed)
	} else {
		a.messagef("may go: %s (%s), %s, %s, %s; %d stay", plural(r.Orphans, "object"), sizeText(r.OrphanBytes),
			plural(r.Uploads, "upload"), plural(r.Records, "record"), plural(r.Probes, "probe"), r.Kept)
	}
	switch {
	case r.More > 0:
		a.messagef("  next: run it again; one run takes no more than it did, %d are left", r.More)
	case !o.apply && r.Orphans+r.Uploads+r.Records+r.Probes > 0:
		a.messagef("  next: run it again with --apply to delete them")
	}
}

func (a *app) printOrphan(f audit.Orphan, action string) error {
	message := f.Kept
	if message == "" {
		message = f.Proof
	}
	if message == "" {
		message = "no record knows it, and nothing readable needs it"
	}
	if a.json {
		millis := int64(-1)
		if f.Age >= 0 {
			millis = f.Age.Milliseconds()
		}
		return jsonLines(a.stdout).Encode(orphanLine{
			Reason: string(f.Reason), Action: action, Object: f.Key, UploadID: f.UploadID,
			Topic: f.Partition.Topic, TopicID: f.Partition.TopicID, Partition: f.Partition.Number,
			SegmentID: f.SegmentID, StartOffset: f.StartOffset, SizeBytes: f.Size, AgeMillis: millis, Message: message,
		})
	}
	what := f.Key
	if f.UploadID != "" {
		what += " (upload " + f.UploadID + ")"
	}
	_, err := fmt.Fprintf(a.stdout, "%s  %s  %s  %s: %s\n", f.Reason, what, sizeText(f.Size), action, message)
	return err
}

// maxPlan bounds the file of a plan in bytes: one run finds 100,000 orphans, and a
// key has at most 1,024 bytes.
const maxPlan = 256 << 20

func readPlan(name string) (*audit.Plan, error) {
	b, err := readSmall(name, maxPlan)
	if err != nil {
		return nil, fmt.Errorf("plan %s: %w", name, err)
	}
	p := new(audit.Plan)
	if err := strictly(b, p); err != nil {
		return nil, fmt.Errorf("plan %s: %w", name, err)
	}
	return p, nil
}
