package segtier.testdata;

import static segtier.testdata.Main.say;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.zip.CRC32C;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.server.log.remote.metadata.storage.RemoteLogMetadataTopicPartitioner;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.RemoteLogMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState;
import org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteMetadata;
import org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteState;

/** What the running broker answers: records, offsets for timestamps, metadata records. */
final class AskBroker {
    static final String METADATA_TOPIC = "__remote_log_metadata";

    private final Main.Env env;
    private final Admin admin;

    AskBroker(Main.Env env) {
        this.env = env;
        this.admin = env.admin();
    }

    void run() throws Exception {
        Path dir = Files.createDirectories(env.work().resolve("answers"));
        for (Topics.Topic t : Topics.ALL) {
            if (t.name().equals(Topics.SCRATCH)) {
                continue;
            }
            Uuid id = admin.describeTopics(List.of(t.name())).allTopicNames().get().get(t.name()).topicId();
            for (int p = 0; p < t.partitions(); p++) {
                List<String> lines = partition(t, id, new TopicPartition(t.name(), p));
                Files.write(dir.resolve(t.name() + "-" + p), lines);
            }
        }
        Files.write(dir.resolve(METADATA_TOPIC), metadata());
    }

    private KafkaConsumer<byte[], byte[]> consumer(String isolation) {
        Properties p = new Properties();
        p.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, env.bootstrap());
        p.put(ConsumerConfig.ENABLE_METRICS_PUSH_CONFIG, false);
        p.put(ConsumerConfig.ISOLATION_LEVEL_CONFIG, isolation);
        p.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "none");
        p.put(ConsumerConfig.MAX_PARTITION_FETCH_BYTES_CONFIG, 4 << 20);
        p.put(ConsumerConfig.EXCLUDE_INTERNAL_TOPICS_CONFIG, false);
        return new KafkaConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private List<ConsumerRecord<byte[], byte[]>> consume(TopicPartition tp, String isolation, long from, long to) {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        try (var consumer = consumer(isolation)) {
            consumer.assign(List.of(tp));
            consumer.seek(tp, from);
            long deadline = System.nanoTime() + Duration.ofSeconds(60).toNanos();
            while (consumer.position(tp) < to) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException(tp + ": got no further than offset " + consumer.position(tp) + " of " + to);
                }
                consumer.poll(Duration.ofMillis(200)).records(tp).forEach(records::add);
            }
        }
        return records;
    }

    private ListOffsetsResultInfo offset(TopicPartition tp, OffsetSpec spec, IsolationLevel level) throws Exception {
        return admin.listOffsets(Map.of(tp, spec), new ListOffsetsOptions(level)).partitionResult(tp).get();
    }

    private ListOffsetsResultInfo offset(TopicPartition tp, OffsetSpec spec) throws Exception {
        return offset(tp, spec, IsolationLevel.READ_UNCOMMITTED);
    }

    private List<String> partition(Topics.Topic t, Uuid id, TopicPartition tp) throws Exception {
        List<String> lines = new ArrayList<>();
        String name = tp.toString();
        long start = offset(tp, OffsetSpec.earliest()).offset();
        long end = offset(tp, OffsetSpec.latest()).offset();
        long stable = offset(tp, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED).offset();
        lines.add(Json.line("kind", "partition", "partition", name, "topicId", id, "tiered", t.tiered(),
            "compacted", t.configs().getOrDefault("cleanup.policy", "").equals("compact"),
            "logStartOffset", start, "localStartOffset", offset(tp, OffsetSpec.earliestLocal()).offset(),
            "latestTiered", t.tiered() ? offset(tp, OffsetSpec.latestTiered()).offset() : null,
            "lastStableOffset", stable, "endOffset", end));

        Set<Long> committed = new HashSet<>();
        consume(tp, "read_committed", start, stable).forEach(r -> committed.add(r.offset()));
        List<ConsumerRecord<byte[], byte[]>> records = consume(tp, "read_uncommitted", start, end);
        TreeSet<Long> times = new TreeSet<>();
        for (var r : records) {
            lines.add(record(name, r.offset(), r.timestamp(), r.leaderEpoch().orElse(-1), r.key(), r.value(), r.headers().toArray(),
                committed.contains(r.offset())));
            times.add(r.timestamp());
        }

        // A few timestamps: around both ends, around some in between, and around out-of-order ones.
        TreeSet<Long> asked = new TreeSet<>();
        if (!times.isEmpty()) {
            List<Long> sorted = new ArrayList<>(times);
            for (int i = 0; i <= 6; i++) {
                long ts = sorted.get((sorted.size() - 1) * i / 6);
                asked.addAll(List.of(Math.max(0, ts - 1), ts, ts + 1));
            }
            long max = -1;
            int n = 0;
            for (var r : records) {
                if (r.timestamp() < max && n++ < 4) {
                    asked.add(r.timestamp());
                }
                max = Math.max(max, r.timestamp());
            }
        } else {
            asked.addAll(List.of(0L, Produce.FIXED));
        }
        for (long ts : asked) {
            var o = offset(tp, OffsetSpec.forTimestamp(ts));
            lines.add(Json.line("kind", "time", "partition", name, "time", ts, "offset", o.offset(), "timestamp", o.timestamp(),
                "epoch", o.leaderEpoch().orElse(-1)));
        }
        var o = offset(tp, OffsetSpec.maxTimestamp());
        lines.add(Json.line("kind", "maxTime", "partition", name, "offset", o.offset(), "timestamp", o.timestamp(),
            "epoch", o.leaderEpoch().orElse(-1)));
        say("  %s: offsets %d..%d, %d records, %d of them visible to read_committed, %d timestamps asked for",
            name, start, end, records.size(), committed.size(), asked.size());
        return lines;
    }

    /** The line for one record. It is made here from what a consumer got, and in Collect from the files. */
    static String record(String partition, long offset, long timestamp, int epoch, byte[] key, byte[] value, Header[] headers,
                         boolean committed) {
        return Json.line("kind", "record", "partition", partition, "offset", offset, "timestamp", timestamp, "epoch", epoch,
            "keyLen", key == null ? -1 : key.length, "valueLen", value == null ? -1 : value.length,
            "valueCrc32c", value == null ? null : crc(value), "headers", headers.length == 0 ? null : headers.length,
            "committed", committed ? null : false);
    }

    static long crc(byte[] b) {
        CRC32C crc = new CRC32C();
        crc.update(b);
        return crc.getValue();
    }

    private List<String> metadata() throws Exception {
        List<String> lines = new ArrayList<>();
        RemoteLogMetadataSerde serde = new RemoteLogMetadataSerde();
        int partitions = admin.describeTopics(List.of(METADATA_TOPIC)).allTopicNames().get().get(METADATA_TOPIC).partitions().size();
        for (int p = 0; p < partitions; p++) {
            TopicPartition tp = new TopicPartition(METADATA_TOPIC, p);
            for (var r : consume(tp, "read_uncommitted", 0, offset(tp, OffsetSpec.latest()).offset())) {
                lines.add(Json.line("metadataPartition", r.partition(), "offset", r.offset(), "timestamp", r.timestamp(),
                    "keyLen", r.key() == null ? -1 : r.key().length, "valueLen", r.value().length, "valueCrc32c", crc(r.value()),
                    "metadata", metadata(serde.deserialize(r.value()))));
            }
        }
        return lines;
    }

    private static Json.Raw metadata(RemoteLogMetadata m) {
        String type;
        RemoteLogSegmentId segment = null;
        RemoteLogSegmentMetadata add = null;
        Object state;
        Optional<CustomMetadata> custom = Optional.empty();
        if (m instanceof RemoteLogSegmentMetadata s) {
            type = "segment";
            add = s;
            segment = s.remoteLogSegmentId();
            state = s.state();
            custom = s.customMetadata();
        } else if (m instanceof RemoteLogSegmentMetadataUpdate u) {
            type = "segmentUpdate";
            segment = u.remoteLogSegmentId();
            state = u.state();
            custom = u.customMetadata();
        } else {
            type = "partitionDelete";
            state = ((RemotePartitionDeleteMetadata) m).state();
        }
        List<Object> epochs = null;
        if (add != null) {
            epochs = new ArrayList<>();
            for (var e : new TreeMap<>(add.segmentLeaderEpochs()).entrySet()) {
                epochs.add(List.of(e.getKey(), e.getValue()));
            }
        }
        return Json.object("type", type, "topic", m.topicIdPartition().topic(), "topicId", m.topicIdPartition().topicId(),
            "partition", m.topicIdPartition().partition(), "segmentId", segment == null ? null : segment.id(),
            "brokerId", m.brokerId(), "eventTimestampMs", m.eventTimestampMs(), "state", state,
            "startOffset", add == null ? null : add.startOffset(), "endOffset", add == null ? null : add.endOffset(),
            "maxTimestampMs", add == null ? null : add.maxTimestampMs(), "segmentSizeInBytes", add == null ? null : add.segmentSizeInBytes(),
            "segmentLeaderEpochs", epochs, "txnIdxEmpty", add == null ? null : add.isTxnIdxEmpty(),
            "customMetadata", custom.map(c -> HexFormat.of().formatHex(c.value())).orElse(null));
    }

    /**
     * Metadata that this broker does not write with this storage manager (deletion of a partition, custom
     * metadata, other states), in the form that Kafka's serializer gives it.
     */
    static List<String> vectors() {
        TopicIdPartition foo = new TopicIdPartition(Uuid.fromString("Bp9TDduJRGa9Q5rlvCJOxg"), 3, "foo");
        TopicIdPartition longName = new TopicIdPartition(Uuid.fromString("_____________________w"), 100, "long-name.".repeat(20) + "_end");
        Uuid segment = Uuid.fromString("ASNFZ4mrze_-3LqYdlQyEA");
        long ts = 1_700_000_000_000L;
        List<RemoteLogMetadata> all = new ArrayList<>();
        for (TopicIdPartition tp : List.of(foo, longName)) {
            RemoteLogSegmentId id = new RemoteLogSegmentId(tp, segment);
            for (RemotePartitionDeleteState state : RemotePartitionDeleteState.values()) {
                all.add(new RemotePartitionDeleteMetadata(tp, state, ts + 7, 7));
            }
            for (Optional<CustomMetadata> custom : List.of(Optional.<CustomMetadata>empty(),
                Optional.of(new CustomMetadata(new byte[0])), Optional.of(new CustomMetadata(new byte[] {1, 2, 3})),
                Optional.of(new CustomMetadata(new byte[127])))) {
                for (boolean txnIdxEmpty : new boolean[] {false, true}) {
                    all.add(new RemoteLogSegmentMetadata(id, 100, 250, ts, 7, ts + 1234, 4096, custom,
                        RemoteLogSegmentState.COPY_SEGMENT_STARTED, Map.of(2, 100L, 5, 180L), txnIdxEmpty));
                }
                for (RemoteLogSegmentState state : RemoteLogSegmentState.values()) {
                    if (state != RemoteLogSegmentState.COPY_SEGMENT_STARTED) {
                        all.add(new RemoteLogSegmentMetadataUpdate(id, ts + 1235, custom, state, 8));
                    }
                }
            }
        }
        TopicIdPartition zero = new TopicIdPartition(Uuid.fromString("AAAAAAAAAAAAAAAAAAAAAQ"), Integer.MAX_VALUE, "a");
        all.add(new RemoteLogSegmentMetadata(new RemoteLogSegmentId(zero, segment), 0, Long.MAX_VALUE, -1, Integer.MAX_VALUE, Long.MAX_VALUE,
            Integer.MAX_VALUE, Optional.empty(), RemoteLogSegmentState.COPY_SEGMENT_FINISHED, Map.of(0, 0L), true));

        List<String> lines = new ArrayList<>();
        RemoteLogMetadataSerde serde = new RemoteLogMetadataSerde();
        for (RemoteLogMetadata m : all) {
            lines.add(Json.line("value", HexFormat.of().formatHex(serde.serialize(m)),
                "metadataPartitionOf5", new RemoteLogMetadataTopicPartitioner(5).metadataPartition(m.topicIdPartition()),
                "metadataPartitionOf50", new RemoteLogMetadataTopicPartitioner(50).metadataPartition(m.topicIdPartition()),
                "metadata", metadata(m)));
        }
        return lines;
    }
}
