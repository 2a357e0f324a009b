// Package kafkafetch is as much of a Kafka broker as it takes to read a tier with
// any Kafka client: ApiVersions, Metadata, ListOffsets and Fetch, over TCP. It
// shows how a broker makes Fetch responses out of segtier's Results.
//
// Everything of a response but the records is encoded by franz-go's kmsg; the
// records stay where they are, in the cache's memory, and go to the socket with
// one writev. That takes a version of the response in which the records come
// last in a partition, which they do up to 11.
//
// Not handled, for it is the broker's: a local log behind the tier, sessions of
// fetches, authentication, quotas.
package kafkafetch

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/segtier/segtier"
	"github.com/segtier/segtier/fetch"
	"github.com/segtier/segtier/metadata"
	"github.com/segtier/segtier/segment"
)

// Broker serves the partitions of a Tier. It is the leader of all of them.
type Broker struct {
	Tier *segtier.Tier

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	done  sync.WaitGroup
}

// versions are the requests that are understood, and up to which version.
var versions = map[kmsg.Key][2]int16{
	kmsg.ApiVersions: {0, 3},
	kmsg.Metadata:    {1, 8},
	kmsg.ListOffsets: {1, 5},
	kmsg.Fetch:       {4, 11},
}

// Serve answers the clients that connect to l, until l is closed; then it ends
// their connections and returns.
func (b *Broker) Serve(l net.Listener) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer b.done.Wait()
	defer b.hangUp()
	defer cancel()
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		b.mu.Lock()
		if b.conns == nil {
			b.conns = map[net.Conn]struct{}{}
		}
		b.conns[conn] = struct{}{}
		b.mu.Unlock()
		b.done.Go(func() {
			defer b.forget(conn)
			c := client{b: b, conn: conn, host: l.Addr().(*net.TCPAddr)}
			for c.answer(ctx) == nil { // an error ends the connection
			}
		})
	}
}

func (b *Broker) hangUp() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.conns {
		c.Close()
	}
}

func (b *Broker) forget(conn net.Conn) {
	conn.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.conns, conn)
}

// client is one connection. What it needs for a fetch is used again for the next.
type client struct {
	b    *Broker
	conn net.Conn
	host *net.TCPAddr

	in      []byte
	answers []fetch.Answer
	head    []byte // encoded parts of a response
	bufs    net.Buffers
}

// answer reads one request and answers it.
func (c *client) answer(ctx context.Context) error {
	var size [4]byte
	if _, err := io.ReadFull(c.conn, size[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n < 10 || n > 1<<20 {
		return fmt.Errorf("a request of %d bytes", n)
	}
	c.in = append(c.in[:0], make([]byte, n)...)
	if _, err := io.ReadFull(c.conn, c.in); err != nil {
		return err
	}
	key, version := kmsg.Key(binary.BigEndian.Uint16(c.in)), int16(binary.BigEndian.Uint16(c.in[2:]))
	correlation, idSize := c.in[4:8], int(int16(binary.BigEndian.Uint16(c.in[8:10])))
	body := c.in[10:]
	if idSize > len(body) {
		return errors.New("a client id that is longer than the request")
	}
	body = body[max(idSize, 0):]
	known, ok := versions[key]
	if ok && version > known[1] && key == kmsg.ApiVersions {
		// As Kafka does; the client asks again, with a version that it finds there.
		resp := c.versions(0)
		resp.ErrorCode = kerr.UnsupportedVersion.Code
		return c.send(correlation, resp)
	}
	if !ok || version < known[0] || version > known[1] {
		return fmt.Errorf("request %v of version %d is not understood", key, version)
	}
	req := kmsg.RequestForKey(int16(key))
	req.SetVersion(version)
	if req.IsFlexible() && len(body) > 0 {
		body = body[1:] // the header's tags: clients send none
	}
	if err := req.ReadFrom(body); err != nil {
		return err
	}
	switch req := req.(type) {
	case *kmsg.FetchRequest:
		return c.fetch(ctx, correlation, req)
	case *kmsg.MetadataRequest:
		return c.send(correlation, c.metadata(req))
	case *kmsg.ListOffsetsRequest:
		return c.send(correlation, c.offsets(ctx, req))
	default:
		return c.send(correlation, c.versions(version))
	}
}

// send writes a response without records.
func (c *client) send(correlation []byte, resp kmsg.Response) error {
	out := append(append(make([]byte, 4), correlation...), resp.AppendTo(nil)...)
	binary.BigEndian.PutUint32(out, uint32(len(out)-4))
	_, err := c.conn.Write(out)
	return err
}

func (c *client) versions(version int16) *kmsg.ApiVersionsResponse {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.Version = version
	for key, v := range versions {
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MinVersion, k.MaxVersion = int16(key), v[0], v[1]
		resp.ApiKeys = append(resp.ApiKeys, k)
	}
	return resp
}

func (c *client) metadata(req *kmsg.MetadataRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	broker := kmsg.NewMetadataResponseBroker()
	broker.NodeID, broker.Host, broker.Port = 1, c.host.IP.String(), int32(c.host.Port)
	resp.Brokers, resp.ControllerID = append(resp.Brokers, broker), 1
	partitions, err := c.b.Tier.Partitions()
	if err != nil {
		return resp
	}
	at := map[string]int{}
	for _, p := range partitions {
		i, ok := at[p.Topic]
		if !ok {
			t := kmsg.NewMetadataResponseTopic()
			t.Topic = kmsg.StringPtr(p.Topic)
			i, resp.Topics = len(resp.Topics), append(resp.Topics, t)
			at[p.Topic] = i
		}
		tp := kmsg.NewMetadataResponseTopicPartition()
		tp.Partition, tp.Leader, tp.Replicas, tp.ISR = p.Number, 1, []int32{1}, []int32{1}
		resp.Topics[i].Partitions = append(resp.Topics[i].Partitions, tp)
	}
	return resp
}

// find returns the partition with a topic's name.
func (c *client) find(topic string, number int32) (segment.Partition, error) {
	partitions, err := c.b.Tier.Partitions()
	if err != nil {
		return segment.Partition{}, err
	}
	for _, p := range partitions {
		if p.Topic == topic && p.Number == number {
			return p, nil
		}
	}
	return segment.Partition{}, metadata.ErrUnknownPartition
}

// bounds returns the first offset of a partition and the one behind the last.
func (c *client) bounds(p segment.Partition) (start, end int64, err error) {
	view, err := c.b.Tier.View(p)
	if err != nil {
		return 0, 0, err
	}
	if first, ok := view.Earliest(nil); ok {
		start, end = first.StartOffset, view.CopiedUpTo(nil)+1
	}
	return start, end, nil
}

func (c *client) offsets(ctx context.Context, req *kmsg.ListOffsetsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	for _, topic := range req.Topics {
		t := kmsg.NewListOffsetsResponseTopic()
		t.Topic = topic.Topic
		for _, partition := range topic.Partitions {
			answer := kmsg.NewListOffsetsResponseTopicPartition()
			answer.Partition = partition.Partition
			p, err := c.find(topic.Topic, partition.Partition)
			if err == nil {
				answer.Offset, answer.Timestamp, err = c.offset(ctx, p, partition.Timestamp)
			}
			answer.ErrorCode = code(err)
			t.Partitions = append(t.Partitions, answer)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

func (c *client) offset(ctx context.Context, p segment.Partition, timestamp int64) (offset, at int64, err error) {
	start, end, err := c.bounds(p)
	switch timestamp {
	case -2: // earliest
		return start, -1, err
	case -1: // latest
		return end, -1, err
	}
	pos, err := c.b.Tier.OffsetForTime(ctx, fetch.TimeRequest{Partition: p, LogStart: start, Time: timestamp})
	return pos.Offset, pos.Timestamp, err
}

// fetch answers a Fetch request with what is there before its waiting time is
// over.
func (c *client) fetch(ctx context.Context, correlation []byte, req *kmsg.FetchRequest) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(req.MaxWaitMillis)*time.Millisecond)
	defer cancel()
	isolation := fetch.ReadUncommitted
	if req.IsolationLevel == 1 {
		isolation = fetch.ReadCommitted
	}
	many := fetch.ManyRequest{MaxBytes: int(req.MaxBytes)}
	for _, topic := range req.Topics {
		for _, partition := range topic.Partitions {
			p, err := c.find(topic.Topic, partition.Partition)
			if err != nil { // then segtier says so
				p = segment.Partition{Topic: topic.Topic, Number: partition.Partition}
			}
			start, _, _ := c.bounds(p)
			many.Requests = append(many.Requests, fetch.Request{
				Partition: p, LogStart: start, Offset: partition.FetchOffset,
				MaxBytes: int(partition.PartitionMaxBytes), Isolation: isolation,
			})
		}
	}
	c.answers = c.b.Tier.FetchMany(ctx, many, c.answers)
	defer func() {
		for i := range c.answers {
			c.answers[i].Result.Release()
		}
	}()
	some := false
	for i := range c.answers {
		some = some || c.answers[i].Err == nil || code(c.answers[i].Err) != 0
	}
	if !some {
		<-ctx.Done() // a broker would wait for new records
	}
	return c.respond(correlation, req, many.Requests)
}

// respond writes a Fetch response: the records from where they are, and between
// them what kmsg encodes.
func (c *client) respond(correlation []byte, req *kmsg.FetchRequest, asked []fetch.Request) error {
	envelope := req.ResponseKind().(*kmsg.FetchResponse)
	c.head = append(append(append(c.head[:0], 0, 0, 0, 0), correlation...), envelope.AppendTo(nil)...)
	binary.BigEndian.PutUint32(c.head[len(c.head)-4:], uint32(len(asked))) // topics: one for each partition
	prefix := len(c.head) - 8
	size := len(c.head) - 4

	c.bufs = append(c.bufs[:0], c.head)
	for i := range c.answers {
		answer := &c.answers[i]
		one := req.ResponseKind().(*kmsg.FetchResponse)
		one.Topics = []kmsg.FetchResponseTopic{{Topic: asked[i].Partition.Topic, Partitions: []kmsg.FetchResponseTopicPartition{c.describe(asked[i], answer)}}}
		frame := one.AppendTo(nil)[prefix:]
		n := answer.Result.Size()
		binary.BigEndian.PutUint32(frame[len(frame)-4:], uint32(n)) // the length of the records, which come now
		c.bufs = answer.Result.AppendTo(append(c.bufs, frame))
		size += len(frame) + n
	}
	binary.BigEndian.PutUint32(c.head, uint32(size))
	out := c.bufs // WriteTo consumes it
	_, err := out.WriteTo(c.conn)
	clear(c.bufs)
	return err
}

// describe is an answer but for its records.
func (c *client) describe(asked fetch.Request, answer *fetch.Answer) kmsg.FetchResponseTopicPartition {
	p := kmsg.NewFetchResponseTopicPartition()
	p.Partition, p.ErrorCode = asked.Partition.Number, code(answer.Err)
	start, end, _ := c.bounds(asked.Partition)
	p.LogStartOffset, p.HighWatermark, p.LastStableOffset = start, end, end
	if asked.Isolation == fetch.ReadCommitted {
		// Not complete means that markers may lie in the local log behind the tier: a
		// broker adds those of its local segments. Here there is none.
		list, _, _ := answer.Result.AbortedTransactions()
		for _, txn := range list {
			t := kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
			t.ProducerID, t.FirstOffset = txn.ProducerID, txn.FirstOffset
			p.AbortedTransactions = append(p.AbortedTransactions, t)
		}
	}
	return p
}

// code is docs/errors.md.
func code(err error) int16 {
	for _, c := range []struct {
		is   error
		code *kerr.Error
	}{
		{fetch.ErrOutOfRange, kerr.OffsetOutOfRange},
		{fetch.ErrSkipped, kerr.OffsetOutOfRange},
		{fetch.ErrCorruption, kerr.CorruptMessage},
		{fetch.ErrUnavailable, kerr.KafkaStorageError},
		{fetch.ErrClosed, kerr.NotLeaderForPartition},
		{metadata.ErrNotReady, kerr.ReplicaNotAvailable},
		{metadata.ErrUnavailable, kerr.ReplicaNotAvailable},
		{metadata.ErrIncomplete, kerr.ReplicaNotAvailable},
		{metadata.ErrUnknownPartition, kerr.UnknownTopicOrPartition},
	} {
		if errors.Is(err, c.is) {
			return c.code.Code
		}
	}
	switch {
	case err == nil, errors.Is(err, fetch.ErrNotReady), errors.Is(err, fetch.ErrEndOfTier):
		return 0 // no records, and no error; the end of the tier is the local log's business
	}
	return kerr.UnknownServerError.Code
}
