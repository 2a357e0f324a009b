package segtier.testdata;

import static segtier.testdata.Main.say;

import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.FileVisitResult;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.SimpleFileVisitor;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Stream;

import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.FileLogInputStream.FileChannelRecordBatch;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.log.AbortedTxn;
import org.apache.kafka.storage.internals.log.BatchMetadata;
import org.apache.kafka.storage.internals.log.EpochEntry;
import org.apache.kafka.storage.internals.log.OffsetIndex;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.TimeIndex;
import org.apache.kafka.storage.internals.log.TransactionIndex;

/**
 * Runs after the last clean shutdown: reads the files with Kafka's own classes, compares them with what
 * the broker answered, checks that everything that the tests need is really there, and copies it.
 */
final class Collect {
    private static final long MAX_TOTAL = 8L << 20;

    private final Main.Env env;
    /** Coverage points found so far, with where. */
    private final Map<String, Set<String>> found = new TreeMap<>();

    Collect(Main.Env env) {
        this.env = env;
    }

    /** Everything that must be found in the files. */
    private static final List<String> NEEDED = List.of(
        "codec none", "codec gzip", "codec snappy", "codec lz4", "codec zstd",
        "one segment with all five codecs", "snappy batch of several chunks", "lz4 batch of several blocks", "lz4 block stored as it is",
        "batch of a producer without idempotence", "batch of an idempotent producer", "transactional batch",
        "commit marker", "abort marker",
        "committed transaction across three or more segments",
        "aborted transaction across three or more segments",
        "abort marker in a later segment than all of its data",
        "interleaved transactions of two producers",
        "last stable offset of an aborted transaction before its end",
        "transaction left open",
        "closed segment above the last stable offset",
        "transaction index in a closed segment", "closed segment without a transaction index",
        "segment which starts with a control batch",
        "offset gap between batches", "offset gap inside a batch", "retained empty batch", "last batch of a closed segment removed",
        "batch with a delete horizon", "closed segment of a compacted topic not cleaned yet",
        "CreateTime", "LogAppendTime", "timestamps out of order", "newest record not at the end of its segment", "timestamp 0",
        "record above 1 MiB", "record above 1 MiB compressed",
        "several leader epochs", "segment with two leader epochs",
        "closed segment above 2.5 MiB", "batch across each 1 MiB boundary",
        "null key", "null value", "empty value", "record headers",
        "segment with an index entry per batch", "segment with fewer index entries than batches",
        "log start offset in the middle of a segment", "log start offset above 0 in a tiered topic",
        "partition without records",
        "metadata COPY_SEGMENT_STARTED", "metadata COPY_SEGMENT_FINISHED",
        "metadata DELETE_SEGMENT_STARTED", "metadata DELETE_SEGMENT_FINISHED",
        "metadata with txnIdxEmpty false", "metadata with two leader epochs",
        "remote segment with a transaction index", "remote segments identical to local ones");

    private void mark(String point, String where) {
        if (!NEEDED.contains(point)) {
            throw new IllegalArgumentException(point);
        }
        found.computeIfAbsent(point, k -> new TreeSet<>()).add(where);
    }

    private void markIf(boolean condition, String point, String where) {
        if (condition) {
            mark(point, where);
        }
    }

    void run() throws Exception {
        List<String> expected = new ArrayList<>();
        for (Topics.Topic t : Topics.ALL) {
            for (int p = 0; p < t.partitions() && !t.name().equals(Topics.SCRATCH); p++) {
                new Partition(t, t.name() + "-" + p).read(expected);
            }
        }
        List<String> metadata = Files.readAllLines(env.work().resolve("answers").resolve(AskBroker.METADATA_TOPIC));
        for (String line : metadata) {
            for (String state : List.of("COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED", "DELETE_SEGMENT_STARTED", "DELETE_SEGMENT_FINISHED")) {
                markIf(line.contains("\"" + state + "\""), "metadata " + state, AskBroker.METADATA_TOPIC);
            }
            markIf(line.contains("\"txnIdxEmpty\":false"), "metadata with txnIdxEmpty false", AskBroker.METADATA_TOPIC);
            markIf(line.matches(".*\"segmentLeaderEpochs\":\\[\\[[^\\]]*\\],\\[.*"), "metadata with two leader epochs", AskBroker.METADATA_TOPIC);
        }
        checkMetadata(metadata);
        checkRemote();

        say("coverage:");
        boolean missing = false;
        for (String point : NEEDED) {
            Set<String> where = found.get(point);
            say("  %-60s %s", point, where == null ? "MISSING" : String.join(" ", where));
            missing |= where == null;
        }
        if (missing) {
            throw new IllegalStateException("some coverage points are missing");
        }
        copy(expected, metadata);
    }

    // ------------------------------------------------------------------ one partition

    private static final class Txn {
        final Set<Long> segments = new TreeSet<>();
        final long first;
        long lastData;

        Txn(long first) {
            this.first = first;
        }
    }

    private final class Partition {
        private final Topics.Topic topic;
        private final String name;
        private final File dir;
        private final boolean compacted;
        private final Map<Long, Txn> open = new HashMap<>();
        private final Set<Long> producersInTxn = new HashSet<>();
        private final List<long[]> timestamps = new ArrayList<>();
        private long maxTimestamp = -1;

        Partition(Topics.Topic topic, String name) {
            this.topic = topic;
            this.name = name;
            this.dir = env.partition(name).toFile();
            this.compacted = topic.configs().getOrDefault("cleanup.policy", "").equals("compact");
        }

        void read(List<String> expected) throws Exception {
            List<String> answers = Files.readAllLines(env.work().resolve("answers").resolve(name));
            long logStart = number(answers.get(0), "logStartOffset");
            long stable = number(answers.get(0), "lastStableOffset");
            long end = number(answers.get(0), "endOffset");
            markIf(logStart > 0 && topic.tiered(), "log start offset above 0 in a tiered topic", name);
            expected.add(answers.get(0));

            List<Object> epochs = new ArrayList<>();
            for (EpochEntry e : new LeaderEpochCheckpointFile(LeaderEpochCheckpointFile.newFile(dir), null).read()) {
                epochs.add(List.of(e.epoch(), e.startOffset()));
            }
            markIf(epochs.size() > 1, "several leader epochs", name);
            expected.add(Json.line("kind", "epochs", "partition", name, "epochs", epochs));

            List<Long> bases = new ArrayList<>();
            for (String f : Arrays.stream(dir.list()).sorted().toList()) {
                if (f.endsWith(".log")) {
                    bases.add(Long.parseLong(f.substring(0, 20)));
                } else if (!f.matches("\\d{20}\\.(index|timeindex|txnindex|snapshot)|leader-epoch-checkpoint|partition\\.metadata")) {
                    throw new IllegalStateException("unexpected file " + name + "/" + f);
                }
            }
            markIf(end == 0, "partition without records", name);
            markIf(bases.get(0) > 0 && logStart > bases.get(0), "log start offset in the middle of a segment", name);

            List<String> fromFiles = new ArrayList<>();
            List<String> segments = new ArrayList<>();
            List<Object> aborted = new ArrayList<>();
            for (int i = 0; i < bases.size(); i++) {
                boolean active = i == bases.size() - 1;
                long next = active ? end : bases.get(i + 1);
                segments.add(segment(bases.get(i), next, active, logStart, stable, fromFiles, aborted));
            }
            markIf(!open.isEmpty(), "transaction left open", name);
            expected.addAll(segments);
            expected.add(Json.line("kind", "aborted", "partition", name, "aborted", aborted));
            for (String f : Arrays.stream(dir.list()).filter(f -> f.endsWith(".snapshot")).sorted().toList()) {
                expected.add(snapshot(new File(dir, f)));
            }

            List<String> fromBroker = answers.stream().filter(a -> a.startsWith("{\"kind\":\"record\"")).toList();
            List<String> plain = fromBroker.stream().map(a -> a.replace(",\"committed\":false", "")).toList();
            if (!plain.equals(fromFiles)) {
                for (int i = 0; i < Math.min(plain.size(), fromFiles.size()); i++) {
                    if (!plain.get(i).equals(fromFiles.get(i))) {
                        throw new IllegalStateException(name + ": broker and file disagree:\n" + plain.get(i) + "\n" + fromFiles.get(i));
                    }
                }
                throw new IllegalStateException(name + ": the broker gave " + plain.size() + " records, the files " + fromFiles.size());
            }
            for (String a : answers) {
                if (a.startsWith("{\"kind\":\"time\"")) {
                    checkTime(a, logStart);
                }
            }
            expected.addAll(fromBroker);
            answers.stream().filter(a -> a.startsWith("{\"kind\":\"time\"") || a.startsWith("{\"kind\":\"maxTime\"")).forEach(expected::add);
        }

        private String segment(long base, long next, boolean active, long logStart, long stable, List<String> records,
                               List<Object> aborted) throws Exception {
            String at = String.format("%s@%d", name, base);
            String prefix = String.format("%020d", base);
            File log = new File(dir, prefix + ".log");
            int batches = 0;
            int count = 0;
            long lastRecord = -1;
            long firstRecord = -1;
            long lastBatch = -1;
            long max = -1;
            long maxAt = -1;
            long nextOffset = base;
            boolean deleteHorizon = false;
            Set<Integer> epochs = new TreeSet<>();
            Set<String> codecs = new TreeSet<>();
            try (FileRecords file = FileRecords.open(log, false)) {
                int size = 0;
                for (FileChannelRecordBatch b : file.batches()) {
                    b.ensureValid();
                    if (b.position() != size || b.baseOffset() < nextOffset || b.lastOffset() >= next) {
                        throw new IllegalStateException(at + ": bad batch at position " + b.position());
                    }
                    markIf(b.baseOffset() > nextOffset && compacted && batches > 0, "offset gap between batches", at);
                    nextOffset = b.nextOffset();
                    batches++;
                    lastBatch = b.baseOffset();
                    int from = size;
                    size += b.sizeInBytes();
                    if (file.sizeInBytes() > 2_621_440) {
                        for (int boundary = 1 << 20; boundary < file.sizeInBytes(); boundary += 1 << 20) {
                            markIf(from < boundary && boundary < size, "batch across each 1 MiB boundary", at + "+" + boundary);
                        }
                    }
                    if (b.maxTimestamp() > max) {
                        max = b.maxTimestamp();
                        maxAt = b.lastOffset();
                    }
                    epochs.add(b.partitionLeaderEpoch());
                    deleteHorizon |= b.deleteHorizonMs().isPresent();
                    batch(base, at, b);
                    int inBatch = 0;
                    long expectedOffset = b.baseOffset();
                    for (Record r : b) {
                        inBatch++;
                        markIf(r.offset() > expectedOffset, "offset gap inside a batch", at);
                        expectedOffset = r.offset() + 1;
                        lastRecord = r.offset();
                        firstRecord = firstRecord < 0 ? lastRecord : firstRecord;
                        timestamps.add(new long[] {r.offset(), r.timestamp()});
                        if (b.isControlBatch()) {
                            markIf(batches == 1 && base > 0, "segment which starts with a control batch", at);
                            continue;
                        }
                        count++;
                        record(at, b, r);
                        if (r.offset() >= logStart) {
                            records.add(AskBroker.record(name, r.offset(), r.timestamp(), b.partitionLeaderEpoch(), bytes(r.hasKey(), r.key()),
                                bytes(r.hasValue(), r.value()), r.headers(), true));
                        }
                    }
                    if (inBatch != b.countOrNull()) {
                        throw new IllegalStateException(at + ": wrong count of records in batch " + b.baseOffset());
                    }
                    blocks(at, b, log);
                    codecs.add(b.compressionType().name);
                    mark("codec " + b.compressionType().name, name);
                    markIf(inBatch == 0, "retained empty batch", at);
                }
                if (size != file.sizeInBytes()) {
                    throw new IllegalStateException(at + ": trailing bytes");
                }
            }
            markIf(codecs.size() == 5, "one segment with all five codecs", at);
            markIf(epochs.size() == 2 && !active, "segment with two leader epochs", at);
            markIf(!active && maxAt < next - 1 && maxAt >= 0 && !compacted, "newest record not at the end of its segment", at);
            markIf(!active && log.length() > 2_621_440, "closed segment above 2.5 MiB", at);
            markIf(!active && compacted && nextOffset < next, "last batch of a closed segment removed", at);
            markIf(!active && compacted && !deleteHorizon && nextOffset == next && !gaps(log),
                "closed segment of a compacted topic not cleaned yet", at);
            markIf(deleteHorizon, "batch with a delete horizon", at);
            markIf(!active && base > stable, "closed segment above the last stable offset", at);
            markIf(logStart > base && logStart < next && base > 0, "log start offset in the middle of a segment", at);

            List<Object> offsets = new ArrayList<>();
            File indexFile = new File(dir, prefix + ".index");
            if (indexFile.length() % 8 != 0) {
                throw new IllegalStateException(at + ": index not trimmed");
            }
            if (indexFile.length() > 0) {
                try (OffsetIndex index = new OffsetIndex(indexFile, base, -1, false)) {
                    index.sanityCheck();
                    for (int i = 0; i < index.entries(); i++) {
                        offsets.add(List.of(index.entry(i).offset(), index.entry(i).position()));
                    }
                }
            }
            markIf(!active && offsets.size() >= batches - 1 && batches > 3, "segment with an index entry per batch", at);
            markIf(!active && offsets.size() < batches - 1, "segment with fewer index entries than batches", at);
            List<Object> times = new ArrayList<>();
            File timeFile = new File(dir, prefix + ".timeindex");
            if (timeFile.length() > 0) {
                try (TimeIndex index = new TimeIndex(timeFile, base, -1, false)) {
                    index.sanityCheck();
                    for (int i = 0; i < index.entries(); i++) {
                        times.add(List.of(index.entry(i).timestamp(), index.entry(i).offset()));
                    }
                }
            }
            List<Object> txns = null;
            File txnFile = new File(dir, prefix + ".txnindex");
            if (txnFile.exists()) {
                txns = new ArrayList<>();
                TransactionIndex index = new TransactionIndex(base, txnFile);
                index.sanityCheck();
                for (AbortedTxn a : index.allAbortedTxns()) {
                    txns.add(a.lastOffset());
                    aborted.add(Json.object("segment", base, "producerId", a.producerId(), "firstOffset", a.firstOffset(),
                        "lastOffset", a.lastOffset(), "lastStableOffset", a.lastStableOffset()));
                    markIf(a.lastStableOffset() <= a.lastOffset(), "last stable offset of an aborted transaction before its end", at);
                }
                index.close();
                markIf(!active && !txns.isEmpty(), "transaction index in a closed segment", at);
            } else {
                markIf(!active && topic.name().equals(Topics.PAYMENTS), "closed segment without a transaction index", at);
            }
            return Json.line("kind", "segment", "partition", name, "base", base, "next", next, "active", active ? true : null,
                "size", log.length(), "crc32c", AskBroker.crc(Files.readAllBytes(log.toPath())), "batches", batches, "records", count,
                "firstRecord", firstRecord, "lastRecord", lastRecord, "lastBatch", lastBatch, "maxTimestamp", max,
                "maxTimestampOffset", maxAt, "epochs", List.copyOf(epochs).stream().sorted().toList(), "codecs", new ArrayList<>(codecs),
                "offsetIndex", offsets, "timeIndex", times, "txnIndex", txns);
        }

        /** The broker's answer is the first record (markers included) with a timestamp that is not lower. */
        private void checkTime(String answer, long logStart) {
            long time = number(answer, "time");
            long offset = -1;
            long timestamp = -1;
            for (long[] r : timestamps) {
                if (r[0] >= logStart && r[1] >= time) {
                    offset = r[0];
                    timestamp = r[1];
                    break;
                }
            }
            if (number(answer, "offset") != offset || number(answer, "timestamp") != timestamp) {
                throw new IllegalStateException(name + ": the files say offset " + offset + ", the broker " + answer);
            }
        }

        private boolean gaps(File log) throws IOException {
            try (FileRecords file = FileRecords.open(log, false)) {
                long next = -1;
                for (RecordBatch b : file.batches()) {
                    if (next >= 0 && b.baseOffset() != next || b.lastOffset() - b.baseOffset() + 1 != b.countOrNull()) {
                        return true;
                    }
                    next = b.nextOffset();
                }
                return false;
            }
        }

        /** Looks at the blocks inside a compressed batch. */
        private void blocks(String at, FileChannelRecordBatch b, File log) throws IOException {
            ByteBuffer data = ByteBuffer.allocate(b.sizeInBytes() - 61);
            try (FileChannel channel = FileChannel.open(log.toPath())) {
                Utils.readFully(channel, data, b.position() + 61);
            }
            data.flip();
            int n = 0;
            switch (b.compressionType()) {
                case SNAPPY -> {
                    for (int pos = 16; pos < data.limit(); pos += 4 + data.getInt(pos)) {
                        n++;
                    }
                    markIf(n > 1, "snappy batch of several chunks", at);
                }
                case LZ4 -> {
                    data.order(ByteOrder.LITTLE_ENDIAN);
                    for (int pos = 7; data.getInt(pos) != 0; pos += 4 + (data.getInt(pos) & 0x7fffffff)) {
                        n++;
                        markIf(data.getInt(pos) < 0, "lz4 block stored as it is", at);
                    }
                    markIf(n > 1, "lz4 batch of several blocks", at);
                }
                default -> { }
            }
        }

        private void batch(long base, String at, FileChannelRecordBatch b) {
            if (b.magic() != RecordBatch.MAGIC_VALUE_V2) {
                throw new IllegalStateException(at + ": magic " + b.magic());
            }
            markIf(b.timestampType() == TimestampType.CREATE_TIME, "CreateTime", name);
            markIf(b.timestampType() == TimestampType.LOG_APPEND_TIME, "LogAppendTime", name);
            if (!b.isTransactional()) {
                markIf(!b.hasProducerId(), "batch of a producer without idempotence", name);
                markIf(b.hasProducerId(), "batch of an idempotent producer", name);
                return;
            }
            if (!b.isControlBatch()) {
                mark("transactional batch", name);
                Txn t = open.computeIfAbsent(b.producerId(), k -> new Txn(b.baseOffset()));
                t.segments.add(base);
                t.lastData = b.lastOffset();
                // Data of another producer's transaction which began after this one and was open when this one went on.
                open.values().stream().filter(o -> o != t && o.first > t.first && o.lastData < b.baseOffset())
                    .forEach(o -> mark("interleaved transactions of two producers", name));
                return;
            }
            boolean commit = ControlRecordType.parse(b.iterator().next().key()) == ControlRecordType.COMMIT;
            mark(commit ? "commit marker" : "abort marker", name);
            Txn t = open.remove(b.producerId());
            if (t == null) {
                return; // the data was removed by the cleaner
            }
            markIf(!commit && !t.segments.contains(base), "abort marker in a later segment than all of its data", at);
            t.segments.add(base);
            markIf(commit && t.segments.size() >= 3, "committed transaction across three or more segments", at);
            markIf(!commit && t.segments.size() >= 3, "aborted transaction across three or more segments", at);
        }

        private void record(String at, RecordBatch b, Record r) {
            markIf(r.timestamp() < maxTimestamp && b.timestampType() == TimestampType.CREATE_TIME, "timestamps out of order", name);
            maxTimestamp = Math.max(maxTimestamp, r.timestamp());
            markIf(r.timestamp() == 0, "timestamp 0", at);
            markIf(r.valueSize() > 1 << 20 && !b.isCompressed(), "record above 1 MiB", at);
            markIf(r.valueSize() > 1 << 20 && b.isCompressed(), "record above 1 MiB compressed", at);
            markIf(!r.hasKey(), "null key", name);
            markIf(!r.hasValue(), "null value", name);
            markIf(r.hasValue() && r.valueSize() == 0, "empty value", name);
            markIf(r.headers().length > 0, "record headers", name);
        }

        private String snapshot(File file) throws Exception {
            List<ProducerStateEntry> entries = new ArrayList<>(ProducerStateManager.readSnapshot(file));
            entries.sort(Comparator.comparingLong(ProducerStateEntry::producerId));
            List<Object> producers = new ArrayList<>();
            for (ProducerStateEntry e : entries) {
                BatchMetadata last = null;
                for (BatchMetadata b : e.batchMetadata()) {
                    last = b;
                }
                producers.add(Json.object("producerId", e.producerId(), "producerEpoch", e.producerEpoch(),
                    "lastSequence", last == null ? -1 : last.lastSeq(), "lastOffset", last == null ? -1 : last.lastOffset(),
                    "offsetDelta", last == null ? 0 : last.offsetDelta(), "timestamp", e.lastTimestamp(),
                    "coordinatorEpoch", e.coordinatorEpoch(), "currentTxnFirstOffset", e.currentTxnFirstOffset().orElse(-1)));
            }
            return Json.line("kind", "snapshot", "partition", name, "offset", Long.parseLong(file.getName().substring(0, 20)),
                "size", file.length(), "producers", producers);
        }
    }

    private static byte[] bytes(boolean present, ByteBuffer b) {
        return present ? Utils.toArray(b) : null;
    }

    private static long number(String line, String key) {
        int at = line.indexOf("\"" + key + "\":") + key.length() + 3;
        int to = at;
        while (to < line.length() && (Character.isDigit(line.charAt(to)) || line.charAt(to) == '-')) {
            to++;
        }
        return Long.parseLong(line.substring(at, to));
    }

    // ------------------------------------------------------------------ metadata topic and remote store

    /** The metadata topic's files hold what the consumer got. */
    private void checkMetadata(List<String> lines) throws Exception {
        int n = 0;
        for (Path dir : metadataDirs()) {
            try (FileRecords file = FileRecords.open(dir.resolve("00000000000000000000.log").toFile(), false)) {
                for (RecordBatch b : file.batches()) {
                    for (Record r : b) {
                        String line = lines.get(n++);
                        if (!line.contains("\"offset\":" + r.offset() + ",")
                            || !line.contains("\"valueCrc32c\":" + AskBroker.crc(Utils.toArray(r.value())) + ",")) {
                            throw new IllegalStateException(dir + ": record " + r.offset() + " is not the one that was consumed");
                        }
                    }
                }
            }
        }
        if (n != lines.size()) {
            throw new IllegalStateException("metadata records were written after the consumer had read them");
        }
        Map<String, Integer> kinds = new TreeMap<>();
        for (String line : lines) {
            String state = line.replaceFirst(".*\"state\":\"([A-Z_]+)\".*", "$1");
            kinds.merge(state, 1, Integer::sum);
        }
        say("metadata records: %s", kinds);
    }

    private List<Path> metadataDirs() throws IOException {
        try (Stream<Path> dirs = Files.list(env.data())) {
            return dirs.filter(d -> d.getFileName().toString().startsWith(AskBroker.METADATA_TOPIC + "-")).filter(d -> {
                try {
                    return Files.size(d.resolve("00000000000000000000.log")) > 0;
                } catch (IOException e) {
                    throw new IllegalStateException(e);
                }
            }).sorted().toList();
        }
    }

    private void checkRemote() throws IOException {
        try (Stream<Path> files = Files.walk(env.remote())) {
            for (Path f : files.filter(Files::isRegularFile).toList()) {
                String dir = f.getParent().getFileName().toString();
                String file = f.getFileName().toString();
                Path partition = env.partition(dir.substring(0, dir.length() - 23));
                String suffix = file.substring(43);
                String base = file.substring(0, 20);
                Path local = partition.resolve(base + suffix);
                markIf(suffix.equals(".txnindex"), "remote segment with a transaction index", dir);
                if (suffix.equals(".snapshot") || suffix.equals(".leader_epoch_checkpoint")) {
                    continue;
                }
                if (!Files.exists(local) || Files.mismatch(f, local) != -1) {
                    throw new IllegalStateException(dir + "/" + file + " is not the same as the local file");
                }
                mark("remote segments identical to local ones", dir);
            }
        }
    }

    // ------------------------------------------------------------------ output

    private void copy(List<String> expected, List<String> metadata) throws IOException {
        Path out = env.out();
        for (String dir : List.of("partitions", "remote", "metadata-topic", "checkpoints")) {
            if (Files.exists(out.resolve(dir))) {
                Utils.delete(out.resolve(dir).toFile());
            }
        }
        for (Topics.Topic t : Topics.ALL) {
            for (int p = 0; p < t.partitions() && !t.name().equals(Topics.SCRATCH); p++) {
                tree(env.partition(t.name() + "-" + p), out.resolve("partitions").resolve(t.name() + "-" + p));
            }
        }
        tree(env.remote(), out.resolve("remote").resolve("kafka-tiered-storage"));
        for (Path dir : metadataDirs()) {
            try (Stream<Path> files = Files.list(dir)) {
                for (Path f : files.filter(f -> f.toString().endsWith(".log")).toList()) {
                    file(f, out.resolve("metadata-topic").resolve(dir.getFileName()).resolve(f.getFileName()));
                }
            }
        }
        Files.write(out.resolve("metadata-topic").resolve("expected.jsonl"), metadata);
        Files.write(out.resolve("metadata-topic").resolve("vectors.jsonl"), AskBroker.vectors());
        for (String f : List.of("log-start-offset-checkpoint", "recovery-point-offset-checkpoint", "replication-offset-checkpoint",
            "cleaner-offset-checkpoint", "meta.properties", ".kafka_cleanshutdown")) {
            file(env.data().resolve(f), out.resolve("checkpoints").resolve(f));
        }
        Files.write(out.resolve("expected.jsonl"), expected);

        Map<String, long[]> sizes = new LinkedHashMap<>();
        long total = 0;
        for (String part : List.of("partitions", "remote", "metadata-topic", "checkpoints", "expected.jsonl")) {
            try (Stream<Path> files = Files.walk(out.resolve(part))) {
                for (Path f : files.filter(Files::isRegularFile).toList()) {
                    Path rel = out.relativize(f);
                    String key = part.equals("partitions") ? rel.subpath(0, 2).toString() : part;
                    long[] s = sizes.computeIfAbsent(key, k -> new long[2]);
                    s[0]++;
                    s[1] += Files.size(f);
                    total += Files.size(f);
                }
            }
        }
        say("written:");
        sizes.forEach((k, v) -> say("  %-50s %4d files %9d bytes", k, v[0], v[1]));
        say("  %-50s %15s %9d bytes", "total", "", total);
        if (total > MAX_TOTAL) {
            throw new IllegalStateException("more than " + MAX_TOTAL + " bytes");
        }
    }

    private static void file(Path from, Path to) throws IOException {
        Files.createDirectories(to.getParent());
        Files.copy(from, to, StandardCopyOption.REPLACE_EXISTING);
    }

    /** Copies a tree; directories without files are left out. */
    private static void tree(Path from, Path to) throws IOException {
        Files.walkFileTree(from, new SimpleFileVisitor<>() {
            @Override
            public FileVisitResult visitFile(Path f, BasicFileAttributes a) throws IOException {
                file(f, to.resolve(from.relativize(f)));
                return FileVisitResult.CONTINUE;
            }
        });
    }
}
