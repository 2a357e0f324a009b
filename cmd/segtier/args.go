package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/segtier/segtier/segment"
)

// partitionArg is a partition as the user writes it: topic/partition or
// topicID/partition.
type partitionArg struct {
	topic  string
	number int32
}

func (p partitionArg) String() string { return fmt.Sprintf("%s/%d", p.topic, p.number) }

func parsePartition(s string) (partitionArg, error) {
	const form = "write topic/partition, for example orders/0"
	slash := strings.LastIndexByte(s, '/')
	if slash < 0 {
		if dash := strings.LastIndexByte(s, '-'); dash > 0 {
			if _, err := parseNumber(s[dash+1:]); err == nil {
				return partitionArg{}, usagef("partition %q: %s; did you mean %s/%s?", s, form, s[:dash], s[dash+1:])
			}
		}
		return partitionArg{}, usagef("partition %q: %s", s, form)
	}
	number, err := parseNumber(s[slash+1:])
	if err != nil {
		return partitionArg{}, usagef("partition %q: %q is not a partition number; %s", s, s[slash+1:], form)
	}
	if err := segment.ValidateTopic(s[:slash]); err != nil {
		return partitionArg{}, usagef("partition %q: %w; %s", s, err, form)
	}
	return partitionArg{topic: s[:slash], number: number}, nil
}

func parseNumber(s string) (int32, error) {
	n, err := strconv.ParseUint(s, 10, 31)
	return int32(n), err
}

// resolve finds the partition that the user means among those in metadata. A
// topic name wins over a topic id that is spelled the same.
func resolve(known []segment.Partition, arg partitionArg) (segment.Partition, error) {
	var found []segment.Partition
	var siblings []int32
	for _, p := range known {
		switch {
		case p.Topic != arg.topic:
		case p.Number == arg.number:
			found = append(found, p)
		default:
			siblings = append(siblings, p.Number)
		}
	}
	if id, err := segment.ParseUUID(arg.topic); err == nil && len(found) == 0 {
		for _, p := range known {
			if p.TopicID == id && p.Number == arg.number {
				found = append(found, p)
			}
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		var ids []string
		for _, p := range found {
			ids = append(ids, fmt.Sprintf("%s/%d", p.TopicID, p.Number))
		}
		slices.Sort(ids)
		return segment.Partition{}, usagef("partition %s: %d topics share this name; write %s", arg, len(ids), strings.Join(ids, " or "))
	case len(siblings) > 0:
		slices.Sort(siblings)
		siblings = slices.Compact(siblings)
		return segment.Partition{}, notInTierf("partition %s is not in the tier; of topic %s it holds partition %s", arg, arg.topic, joinNumbers(siblings))
	}
	return segment.Partition{}, notInTierf("partition %s is not in the tier; 'segtier ls' shows what is", arg)
}

func joinNumbers(numbers []int32) string {
	var parts []string
	for _, n := range numbers {
		parts = append(parts, strconv.Itoa(int(n)))
	}
	return strings.Join(parts, ", ")
}

// comparePartitions orders partitions by topic, topic id and number.
func comparePartitions(a, b segment.Partition) int {
	if c := strings.Compare(a.Topic, b.Topic); c != 0 {
		return c
	}
	if c := strings.Compare(a.TopicID.String(), b.TopicID.String()); c != 0 {
		return c
	}
	return int(a.Number) - int(b.Number)
}

// earliest stands for the first offset that is in the tier.
const earliest = "earliest"

// parseOffset parses an offset; earliest is -1.
func parseOffset(s string) (int64, error) {
	if s == earliest {
		return -1, nil
	}
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil {
		return 0, usagef("offset %q: write a number from 0 on, or %s", s, earliest)
	}
	return int64(n), nil
}

// negative explains a negative argument, which was taken for flags; nil if it is
// none, or the command takes no number.
func negative(command string, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return nil
	}
	s := "-" + unknown.GetSpecifiedShortnames()
	if strings.Trim(s[1:], "0123456789") != "" {
		return nil
	}
	var better error
	switch command {
	case "fetch", "explain":
		_, better = parseOffset(s)
	case "offset":
		_, better = parseTime(s)
	}
	return better
}

// parseTime parses RFC 3339 or milliseconds since 1970 and returns
// milliseconds. A time between two milliseconds is the later one: the question
// is for records at or after it.
func parseTime(s string) (int64, error) {
	if ms, err := strconv.ParseUint(s, 10, 63); err == nil {
		return int64(ms), nil
	}
	t, err := time.Parse(time.RFC3339, strings.ToUpper(s))
	if err != nil || t.UnixMilli() < 0 {
		return 0, usagef("time %q: write RFC 3339, for example 2026-01-31T08:00:00Z, or milliseconds since 1970", s)
	}
	ms := t.UnixMilli()
	if t.Nanosecond()%int(time.Millisecond) != 0 {
		ms++
	}
	return ms, nil
}

// byteSize is a flag value: bytes, with or without a unit.
type byteSize int64

// Set parses "1048576", "1MiB" or "1 MB".
func (b *byteSize) Set(s string) error {
	digits := strings.TrimRight(s, "KMGTkmgtiBb ")
	unit, ok := unitOf(strings.TrimSpace(s[len(digits):]))
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || !ok {
		return fmt.Errorf("%q is not a size; write bytes or a unit, for example 65536 or 1MiB", s)
	}
	if n > uint64(math.MaxInt64/unit) {
		return fmt.Errorf("%q is too large", s)
	}
	*b = byteSize(int64(n) * unit)
	return nil
}

// byteLimit is a byteSize that may be -1, for none.
type byteLimit int64

// Set parses what byteSize does, and -1. Other numbers are for who knows the bounds.
func (b *byteLimit) Set(s string) error {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		*b = byteLimit(n)
		return nil
	}
	return (*byteSize)(b).Set(s)
}

func (b *byteLimit) String() string { return (*byteSize)(b).String() }

// Type names the value in help texts.
func (b *byteLimit) Type() string { return "size" }

// String returns the size with the greatest binary unit that divides it.
func (b *byteSize) String() string {
	n, units := int64(*b), []string{"", "KiB", "MiB", "GiB", "TiB"}
	for n != 0 && n%1024 == 0 && len(units) > 1 {
		n, units = n/1024, units[1:]
	}
	return strconv.FormatInt(n, 10) + units[0]
}

// Type names the value in help texts.
func (b *byteSize) Type() string { return "size" }

func unitOf(s string) (int64, bool) {
	switch strings.ToLower(s) {
	case "", "b":
		return 1, true
	case "kib":
		return 1 << 10, true
	case "mib":
		return 1 << 20, true
	case "gib":
		return 1 << 30, true
	case "tib":
		return 1 << 40, true
	case "kb":
		return 1e3, true
	case "mb":
		return 1e6, true
	case "gb":
		return 1e9, true
	case "tb":
		return 1e12, true
	}
	return 0, false
}
