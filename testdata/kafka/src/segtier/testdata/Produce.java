package segtier.testdata;

import static segtier.testdata.Main.await;
import static segtier.testdata.Main.say;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.Future;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Fills the topics. Each phase runs against a newly started broker, so in a new leader epoch. */
final class Produce {
    /** 2024-03-01T00:00:00Z: the origin of explicit timestamps which do not depend on the clock. */
    static final long FIXED = 1_709_251_200_000L;

    private final Main.Env env;
    private final Admin admin;
    /** The origin of explicit timestamps of compacted topics, and of the one with segments that expire. */
    private final long now = System.currentTimeMillis() / 1000 * 1000;

    Produce(Main.Env env) {
        this.env = env;
        this.admin = env.admin();
    }

    // ------------------------------------------------------------------ phases

    void phase1() throws Exception {
        say("phase 1: creating topics");
        List<NewTopic> topics = new ArrayList<>();
        for (Topics.Topic t : Topics.ALL) {
            topics.add(new NewTopic(t.name(), t.partitions(), (short) 1).configs(t.configs()));
        }
        admin.createTopics(topics).all().get();
        await("topics to have leaders", 30, () ->
            admin.describeTopics(Topics.ALL.stream().map(Topics.Topic::name).toList()).allTopicNames().get().values().stream()
                .allMatch(t -> t.partitions().stream().allMatch(p -> p.leader() != null)));

        say("phase 1: producing");
        orders(1, 40);
        payments1();
        sensors(1, 9);
        ledger1();
        metrics();
        users1();
        accounts1();
        blobs();
        events();
        audit();
        archive();
        scratch();

        clean(Topics.USERS);
        clean(Topics.ACCOUNTS);
        awaitTiered();
    }

    void phase2() throws Exception {
        say("phase 2: producing");
        orders(2, 7);
        payments2();
        sensors(2, 7);
        users2();
        accounts2();
        clean(Topics.USERS);
        clean(Topics.ACCOUNTS);
        say("phase 2: deleting topic %s", Topics.SCRATCH);
        admin.deleteTopics(List.of(Topics.SCRATCH)).all().get();
        await("remote segments of the deleted topic to go", 60, () -> remoteFiles(Topics.SCRATCH + "-0") == 0);
        awaitTiered();
    }

    void phase3() throws Exception {
        say("phase 3: producing");
        orders(3, 4);
        sensors(3, 6);
        usersTail();
        ledger3();
        say("phase 3: expiring old segments of %s", Topics.ARCHIVE);
        configure(Topics.ARCHIVE, "retention.ms", "3600000");
        TopicPartition archive = new TopicPartition(Topics.ARCHIVE, 0);
        await("old segments to expire", 60, () -> offset(archive, OffsetSpec.earliest()) > 0
            && offset(archive, OffsetSpec.earliestLocal()) == offset(archive, OffsetSpec.earliest())
            && remoteStarts(Topics.ARCHIVE + "-0").get(0) == offset(archive, OffsetSpec.earliest()));
        say("phase 3: deleting records of %s", Topics.AUDIT);
        TopicPartition audit = new TopicPartition(Topics.AUDIT, 0);
        admin.deleteRecords(Map.of(audit, RecordsToDelete.beforeOffset(67))).all().get();
        await("whole segments below the new start to go", 60, () -> bases(Topics.AUDIT + "-0").get(0) > 0);
        awaitTiered();
        await("files of deleted segments to go", 60, () -> {
            try (var files = Files.walk(env.data())) {
                return files.noneMatch(f -> f.toString().matches(".*\\.(deleted|cleaned|swap|tmp)$"));
            }
        });
    }

    // ------------------------------------------------------------------ topics

    /** Five codecs in turn, two partitions, keys and values of all kinds, timestamps out of order. */
    private void orders(int phase, int batches) throws Exception {
        String[] codecs = {"none", "gzip", "snappy", "lz4", "zstd"};
        List<Sender> senders = new ArrayList<>();
        for (String codec : codecs) {
            senders.add(new Sender(codec, true, null));
        }
        for (int p = 0; p < 2; p++) {
            TopicPartition tp = new TopicPartition(Topics.ORDERS, p);
            Random rnd = new Random(1000 * phase + p);
            long first = FIXED + 3_600_000L * phase;
            int n = 0;
            for (int b = 0; b < batches; b++) {
                Sender sender = senders.get((b + p) % codecs.length);
                List<Rec> recs = new ArrayList<>();
                // Several 32 KiB chunks (snappy) or 64 KiB blocks (lz4) of plain text in one batch.
                boolean wide = phase == 1 && (b == 11 || b == 12 || b == 13);
                int count = wide ? 24 : 1 + rnd.nextInt(14);
                for (int i = 0; i < count; i++, n++) {
                    long ts = first + 1000L * n;
                    if (rnd.nextInt(6) == 0) {
                        ts += rnd.nextInt(180_000) - 90_000;
                    }
                    byte[] key = rnd.nextInt(5) == 0 ? null : utf8("order-%06d", rnd.nextInt(1_000_000));
                    byte[] value = switch (rnd.nextInt(12)) {
                        case 0 -> null;
                        case 1 -> new byte[0];
                        default -> wide ? lines(rnd, 12) : text(rnd, 150 + rnd.nextInt(650));
                    };
                    Rec r = new Rec(ts, key, value);
                    if (rnd.nextInt(4) == 0) {
                        r.headers.add(Map.entry("trace-id", bytes(rnd, 16)));
                        if (rnd.nextInt(2) == 0) {
                            r.headers.add(Map.entry("empty", new byte[0]));
                            r.headers.add(Map.entry("h\u00e9ader", utf8("v\u00e4lue")));
                            r.nullHeader = rnd.nextInt(2) == 0;
                        }
                    }
                    recs.add(r);
                }
                sender.batch(tp, recs);
            }
        }
        closeAll(senders);
    }

    private static final TopicPartition PAYMENTS = new TopicPartition(Topics.PAYMENTS, 0);

    private void payments1() throws Exception {
        Sender a = new Sender("lz4", true, "payments-a");
        Sender b = new Sender("none", true, "payments-b");
        Sender plain = new Sender("zstd", true, null);
        Fill f = new Fill(PAYMENTS, 11, 8, 300);
        // Short transactions, one after the other.
        a.begin();
        f.to(a, 2);
        a.commit(PAYMENTS);
        a.begin();
        f.to(a, 1);
        a.abort(PAYMENTS);
        // Interleaved: one commits, one aborts.
        b.begin();
        f.to(b, 1);
        a.begin();
        f.to(a, 1);
        f.to(b, 1);
        f.to(a, 1);
        a.commit(PAYMENTS);
        b.abort(PAYMENTS);
        // A committed transaction across several segments, with other records in between.
        a.begin();
        for (int i = 0; i < 5; i++) {
            f.to(a, 2);
            f.to(plain, 1);
        }
        a.commit(PAYMENTS);
        // Abort markers in a later segment than the data; a transaction that commits inside.
        b.begin();
        f.to(b, 1);
        f.to(plain, 3);
        a.begin();
        f.to(a, 1);
        a.commit(PAYMENTS);
        f.to(plain, 2);
        b.abort(PAYMENTS);
        // The segment is filled to the last bytes, so that the marker is the first batch of the next one.
        b.begin();
        f.to(b, 1);
        fillSegment(b, PAYMENTS, 12_288);
        b.abort(PAYMENTS);
        f.to(plain, 1);
        closeAll(List.of(a, b, plain));
    }

    /** Leaves less room in the active segment than a marker needs. */
    private void fillSegment(Sender s, TopicPartition tp, int segmentBytes) throws Exception {
        List<Long> bases = bases(tp.toString());
        Path log = env.partition(tp.toString()).resolve(String.format("%020d.log", bases.get(bases.size() - 1)));
        long room = segmentBytes - Files.size(log);
        // A batch of one record with no key takes 61 bytes, at most 20 for the record, and the value. A marker takes 78.
        int value = (int) room - 61 - 20;
        if (value < 0) {
            throw new IllegalStateException("only " + room + " bytes of room in " + log);
        }
        s.batch(tp, List.of(new Rec(System.currentTimeMillis(), null, bytes(new Random(13), value))));
    }

    private void payments2() throws Exception {
        Sender a = new Sender("snappy", true, "payments-a");
        Sender b = new Sender("gzip", true, "payments-b");
        Sender plain = new Sender("none", true, null);
        Fill f = new Fill(PAYMENTS, 12, 8, 300);
        // Two aborts which overlap: the last stable offset stays at the second one's start.
        a.begin();
        f.to(a, 1);
        b.begin();
        f.to(b, 1);
        f.to(a, 1);
        a.abort(PAYMENTS);
        f.to(plain, 1);
        b.abort(PAYMENTS);
        // An aborted transaction across several segments.
        a.begin();
        for (int i = 0; i < 5; i++) {
            f.to(a, 2);
        }
        a.abort(PAYMENTS);
        a.begin();
        f.to(a, 1);
        a.commit(PAYMENTS);
        f.to(plain, 1);
        closeAll(List.of(a, b, plain));
    }

    /** One batch after the other, in several leader epochs; timestamps out of order. */
    private void sensors(int phase, int batches) throws Exception {
        TopicPartition tp = new TopicPartition(Topics.SENSORS, 0);
        Sender none = new Sender("none", true, null);
        Sender zstd = new Sender("zstd", true, null);
        Random rnd = new Random(20 + phase);
        for (int b = 0; b < batches; b++) {
            List<Rec> recs = new ArrayList<>();
            for (int i = 0; i < 10; i++) {
                long ts = FIXED + 86_400_000L * phase + 60_000L * b + 1000L * i;
                if (i % 4 == 3) {
                    ts -= 150_000;
                }
                if (phase == 2 && b == 3 && i == 5) {
                    ts = 0;
                }
                recs.add(new Rec(ts, utf8("sensor-%02d", rnd.nextInt(40)), bytes(rnd, 240)));
            }
            // The newest record of all is in the middle of the log.
            if (phase == 2 && b == 1) {
                recs.get(4).ts = FIXED + 4 * 86_400_000L;
            }
            (b % 3 == 1 ? zstd : none).batch(tp, recs);
        }
        closeAll(List.of(none, zstd));
    }

    private static final TopicPartition LEDGER = new TopicPartition(Topics.LEDGER, 0);

    private void ledger1() throws Exception {
        Sender a = new Sender("none", true, "ledger-a");
        Sender plain = new Sender("gzip", true, null);
        Fill f = new Fill(LEDGER, 31, 6, 300);
        a.begin();
        f.to(a, 2);
        a.commit(LEDGER);
        f.to(plain, 5);
        a.begin();
        f.to(a, 1);
        a.abort(LEDGER);
        f.to(plain, 3);
        closeAll(List.of(a, plain));
    }

    /** Leaves a transaction open at the end: the process stops without closing the producer. */
    private void ledger3() throws Exception {
        Sender a = new Sender("none", true, "ledger-a");
        Sender b = new Sender("lz4", true, "ledger-b");
        Sender plain = new Sender("snappy", true, null);
        Fill f = new Fill(LEDGER, 33, 6, 300);
        f.to(plain, 2);
        a.begin();
        f.to(a, 2);
        f.to(plain, 3);
        b.begin();
        f.to(b, 2);
        b.commit(LEDGER);
        b.begin();
        f.to(b, 1);
        b.abort(LEDGER);
        f.to(plain, 4);
        f.to(a, 1);
        f.to(plain, 1);
        closeAll(List.of(b, plain));
    }

    /** Broker time; no idempotence; an index entry per batch, and segments that roll when the index is full. */
    private void metrics() throws Exception {
        TopicPartition tp = new TopicPartition(Topics.METRICS, 0);
        List<Sender> senders = List.of(new Sender("gzip", false, null), new Sender("none", false, null), new Sender("snappy", false, null));
        Random rnd = new Random(41);
        for (int b = 0; b < 40; b++) {
            List<Rec> recs = new ArrayList<>();
            for (int i = 0; i < 1 + b % 8; i++) {
                recs.add(new Rec(FIXED - 1000L * i, null, text(rnd, 100 + rnd.nextInt(200))));
            }
            senders.get(b % 3).batch(tp, recs);
            Thread.sleep(4); // another broker time for the next batch
        }
        closeAll(senders);
    }

    private static final TopicPartition USERS = new TopicPartition(Topics.USERS, 0);

    /**
     * A batch of eight records for the compacted topic. "keep" keys are never written again, "hot" ones
     * are, all the time. Batches with no "keep" key vanish when the topic is cleaned.
     */
    private void userBatch(Sender s, Random rnd, int phase, int b, long ts, boolean allHot) throws Exception {
        List<Rec> recs = new ArrayList<>();
        for (int i = 0; i < 8; i++) {
            boolean keep = !allHot && (i == 1 || i == 2 || i == 5);
            byte[] key = keep ? utf8("keep-%d-%d-%d", phase, b, i) : utf8("hot-%02d", (b * 7 + i) % 24);
            byte[] value = !keep && rnd.nextInt(10) == 0 ? null : bytes(rnd, 120 + rnd.nextInt(120));
            recs.add(new Rec(ts + 1000L * b + i, key, value));
        }
        s.batch(USERS, recs);
    }

    private void users1() throws Exception {
        Sender solo = new Sender("none", true, null);
        Random rnd = new Random(51);
        // The only batch of its producer, with nothing but a record that is written again later:
        // the cleaner keeps it, empty, to remember the producer's sequence number.
        solo.batch(USERS, List.of(new Rec(now, utf8("solo"), bytes(rnd, 200))));
        List<Sender> senders = List.of(new Sender("none", true, null), new Sender("lz4", true, null), new Sender("zstd", true, null));
        for (int b = 0; b < 44; b++) {
            userBatch(senders.get(b % 3), rnd, 1, b, now, b % 5 >= 3);
            if (b == 10) {
                senders.get(0).batch(USERS, List.of(new Rec(now, utf8("solo"), bytes(rnd, 200))));
                senders.get(0).batch(USERS, List.of(new Rec(now, utf8("keep-tombstone"), null)));
            }
        }
        senders.get(0).batch(USERS, List.of(new Rec(now, utf8("keep-filler"), bytes(rnd, 4000))));
        closeAll(senders);
        closeAll(List.of(solo));
    }

    private void users2() throws Exception {
        Random rnd = new Random(52);
        List<Sender> senders = List.of(new Sender("none", true, null), new Sender("gzip", true, null), new Sender("snappy", true, null));
        for (int b = 0; b < 18; b++) {
            userBatch(senders.get(b % 3), rnd, 2, b, now, b % 4 >= 2);
        }
        closeAll(senders);
    }

    /** Closed segments which the cleaner has not seen. */
    private void usersTail() throws Exception {
        Random rnd = new Random(53);
        Sender s = new Sender("none", true, null);
        for (int b = 0; b < 12; b++) {
            userBatch(s, rnd, 3, b, now, false);
        }
        closeAll(List.of(s));
    }

    private static final TopicPartition ACCOUNTS = new TopicPartition(Topics.ACCOUNTS, 0);

    private void accounts(int phase, int transactions) throws Exception {
        Sender a = new Sender("none", true, "accounts-a");
        Sender b = new Sender("zstd", true, "accounts-b");
        Random rnd = new Random(60 + phase);
        for (int t = 0; t < transactions; t++) {
            Sender s = t % 2 == 0 ? a : b;
            s.begin();
            List<Rec> recs = new ArrayList<>();
            for (int i = 0; i < 5; i++) {
                byte[] key = i < 2 ? utf8("keep-%d-%d-%d", phase, t, i) : utf8("hot-%d", (t + i) % 9);
                recs.add(new Rec(now + 1000L * t + i, key, bytes(rnd, 150)));
            }
            s.batch(ACCOUNTS, recs);
            if (t % 3 == 2) {
                s.abort(ACCOUNTS);
            } else {
                s.commit(ACCOUNTS);
            }
        }
        closeAll(List.of(a, b));
    }

    private void accounts1() throws Exception {
        accounts(1, 30);
    }

    private void accounts2() throws Exception {
        accounts(2, 12);
    }

    /** Records above 1 MiB: random bytes not compressed, and zeros compressed with zstd. */
    private void blobs() throws Exception {
        TopicPartition tp = new TopicPartition(Topics.BLOBS, 0);
        Random rnd = new Random(71);
        Sender none = new Sender("none", true, null);
        Sender zstd = new Sender("zstd", true, null);
        Sender lz4 = new Sender("lz4", true, null);
        int n = 0;
        for (int i = 0; i < 3; i++) {
            none.batch(tp, List.of(new Rec(FIXED + 1000L * n++, utf8("small-%d", i), bytes(rnd, 2000))));
        }
        none.batch(tp, List.of(new Rec(FIXED + 1000L * n++, utf8("large"), bytes(rnd, (1 << 20) + 65_537))));
        for (int i = 0; i < 5; i++) {
            none.batch(tp, List.of(new Rec(FIXED + 1000L * n++, utf8("medium-%d", i), bytes(rnd, 20_000))));
        }
        zstd.batch(tp, List.of(new Rec(FIXED + 1000L * n++, utf8("zeros"), new byte[1_258_291])));
        // lz4: blocks that do not shrink are stored as they are.
        lz4.batch(tp, List.of(
            new Rec(FIXED + 1000L * n++, utf8("mixed"), concat(bytes(rnd, 70_000), new byte[140_000])),
            new Rec(FIXED + 1000L * n++, utf8("last"), text(rnd, 3000))));
        closeAll(List.of(none, zstd, lz4));
    }

    /** One segment of more than 2.5 MiB with batches of very different sizes. */
    private void events() throws Exception {
        TopicPartition tp = new TopicPartition(Topics.EVENTS, 0);
        Random rnd = new Random(81);
        Sender none = new Sender("none", true, null);
        Sender zstd = new Sender("zstd", true, null);
        long total = 0;
        for (int b = 0, n = 0; total < 2_850_000; b++) {
            List<Rec> recs = new ArrayList<>();
            int count = 1 + rnd.nextInt(12);
            int size = rnd.nextInt(3) == 0 ? 12_000 : 1500;
            for (int i = 0; i < count; i++, n++) {
                byte[] value = bytes(rnd, size / 2 + rnd.nextInt(size));
                total += value.length;
                recs.add(new Rec(FIXED + 100L * n, utf8("event-%d", n), value));
            }
            (b % 4 == 3 ? zstd : none).batch(tp, recs);
        }
        closeAll(List.of(none, zstd));
    }

    /** Partition 0 loses its first records later on; partition 1 stays empty. */
    private void audit() throws Exception {
        TopicPartition tp = new TopicPartition(Topics.AUDIT, 0);
        Random rnd = new Random(91);
        Sender s = new Sender("zstd", true, null);
        for (int b = 0; b < 14; b++) {
            List<Rec> recs = new ArrayList<>();
            for (int i = 0; i < 10; i++) {
                recs.add(new Rec(FIXED + 10_000L * b + i, utf8("audit-%d", b), bytes(rnd, 170)));
            }
            s.batch(tp, recs);
        }
        closeAll(List.of(s));
    }

    /** The first segments are two hours old, so that they can be made to expire. */
    private void archive() throws Exception {
        TopicPartition tp = new TopicPartition(Topics.ARCHIVE, 0);
        Random rnd = new Random(101);
        Sender s = new Sender("none", true, null);
        for (int b = 0; b < 15; b++) {
            List<Rec> recs = new ArrayList<>();
            for (int i = 0; i < 6; i++) {
                long ts = (b < 7 ? now - 7_200_000 : now) + 1000L * b + i;
                recs.add(new Rec(ts, utf8("archive-%d", b), bytes(rnd, 180)));
            }
            s.batch(tp, recs);
        }
        closeAll(List.of(s));
    }

    private void scratch() throws Exception {
        TopicPartition tp = new TopicPartition(Topics.SCRATCH, 0);
        Random rnd = new Random(111);
        Sender s = new Sender("none", true, null);
        for (int b = 0; b < 8; b++) {
            List<Rec> recs = new ArrayList<>();
            for (int i = 0; i < 6; i++) {
                recs.add(new Rec(FIXED + 1000L * b + i, null, bytes(rnd, 200)));
            }
            s.batch(tp, recs);
        }
        closeAll(List.of(s));
    }

    // ------------------------------------------------------------------ waiting

    private long offset(TopicPartition tp, OffsetSpec spec) throws Exception {
        return admin.listOffsets(Map.of(tp, spec)).partitionResult(tp).get().offset();
    }

    private long lastStable(TopicPartition tp) throws Exception {
        return admin.listOffsets(Map.of(tp, OffsetSpec.latest()), new ListOffsetsOptions(IsolationLevel.READ_COMMITTED))
            .partitionResult(tp).get().offset();
    }

    /** Base offsets of the local segments, in order. */
    private List<Long> bases(String partition) throws Exception {
        try (var files = Files.list(env.partition(partition))) {
            return files.map(f -> f.getFileName().toString()).filter(f -> f.endsWith(".log"))
                .map(f -> Long.parseLong(f.substring(0, 20))).sorted().toList();
        }
    }

    private List<Path> remoteDirs(String partition) throws Exception {
        if (!Files.isDirectory(env.remote())) {
            return List.of();
        }
        try (var dirs = Files.list(env.remote())) {
            return dirs.filter(d -> {
                String name = d.getFileName().toString();
                return name.substring(0, name.length() - 23).equals(partition);
            }).toList();
        }
    }

    private int remoteFiles(String partition) throws Exception {
        int n = 0;
        for (Path dir : remoteDirs(partition)) {
            try (var files = Files.list(dir)) {
                n += (int) files.count();
            }
        }
        return n;
    }

    private List<Long> remoteStarts(String partition) throws Exception {
        List<Long> starts = new ArrayList<>();
        for (Path dir : remoteDirs(partition)) {
            try (var files = Files.list(dir)) {
                files.map(f -> f.getFileName().toString()).filter(f -> f.endsWith(".log"))
                    .forEach(f -> starts.add(Long.parseLong(f.substring(0, 20))));
            }
        }
        starts.sort(null);
        return starts;
    }

    /** Waits until every closed segment of the tiered topics, below the last stable offset, is in the remote store. */
    private void awaitTiered() throws Exception {
        var existing = admin.listTopics().names().get();
        for (Topics.Topic t : Topics.ALL) {
            for (int p = 0; t.tiered() && existing.contains(t.name()) && p < t.partitions(); p++) {
                TopicPartition tp = new TopicPartition(t.name(), p);
                long stable = lastStable(tp);
                long next = bases(tp.toString()).stream().filter(b -> b <= stable).reduce(0L, Long::max);
                await(tp + " to be tiered up to offset " + next, 60, () ->
                    next == 0 || offset(tp, OffsetSpec.latestTiered()) >= next - 1);
                say("  %s: tiered up to offset %d (last stable offset %d)", tp, next, stable);
            }
        }
    }

    /** Lets the cleaner go over all closed segments of a compacted topic once. */
    private void clean(String topic) throws Exception {
        List<Long> before = bases(topic + "-0");
        long active = before.get(before.size() - 1);
        configure(topic, "min.cleanable.dirty.ratio", "0.01");
        Path checkpoint = env.data().resolve("cleaner-offset-checkpoint");
        await("the cleaner to reach offset " + active + " of " + topic, 60, () ->
            Files.readAllLines(checkpoint).contains(topic + " 0 " + active));
        configure(topic, "min.cleanable.dirty.ratio", "1.0");
        await("files of cleaned segments to go", 30, () -> {
            try (var files = Files.list(env.partition(topic + "-0"))) {
                return files.noneMatch(f -> f.toString().matches(".*\\.(deleted|cleaned|swap)$"));
            }
        });
        say("  %s: cleaned up to offset %d, %d closed segments became %d", topic, active, before.size() - 1, bases(topic + "-0").size() - 1);
    }

    private void configure(String topic, String key, String value) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        admin.incrementalAlterConfigs(Map.of(resource,
            List.of(new AlterConfigOp(new ConfigEntry(key, value), AlterConfigOp.OpType.SET)))).all().get();
    }

    // ------------------------------------------------------------------ records

    private static final class Rec {
        long ts;
        final byte[] key;
        final byte[] value;
        final List<Map.Entry<String, byte[]>> headers = new ArrayList<>();
        boolean nullHeader;

        Rec(long ts, byte[] key, byte[] value) {
            this.ts = ts;
            this.key = key;
            this.value = value;
        }
    }

    /** Writes batches of random records to one partition; the timestamps follow the clock and increase. */
    private static final class Fill {
        private final TopicPartition tp;
        private final Random rnd;
        private final int records;
        private final int size;
        private long ts;
        private int n;

        Fill(TopicPartition tp, int seed, int records, int size) {
            this.tp = tp;
            this.rnd = new Random(seed);
            this.records = records;
            this.size = size;
        }

        void to(Sender s, int batches) throws Exception {
            for (int b = 0; b < batches; b++) {
                List<Rec> recs = new ArrayList<>();
                ts = Math.max(ts, System.currentTimeMillis());
                for (int i = 0; i < records; i++) {
                    recs.add(new Rec(ts++, utf8("%s-%d", tp.topic(), n++), bytes(rnd, size / 2 + rnd.nextInt(size))));
                }
                s.batch(tp, recs);
            }
        }
    }

    /** A producer which writes batch by batch. */
    private final class Sender {
        final KafkaProducer<byte[], byte[]> producer;

        Sender(String codec, boolean idempotent, String transactionalId) {
            Properties p = new Properties();
            p.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, env.bootstrap());
            p.put(ProducerConfig.ENABLE_METRICS_PUSH_CONFIG, false);
            p.put(ProducerConfig.COMPRESSION_TYPE_CONFIG, codec);
            p.put(ProducerConfig.ENABLE_IDEMPOTENCE_CONFIG, idempotent);
            p.put(ProducerConfig.ACKS_CONFIG, idempotent ? "all" : "1");
            p.put(ProducerConfig.LINGER_MS_CONFIG, 30_000); // batches end at flush()
            p.put(ProducerConfig.BATCH_SIZE_CONFIG, 4 << 20);
            p.put(ProducerConfig.MAX_REQUEST_SIZE_CONFIG, 4 << 20);
            if (transactionalId != null) {
                p.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, transactionalId);
                p.put(ProducerConfig.TRANSACTION_TIMEOUT_CONFIG, 900_000);
            }
            producer = new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer());
            if (transactionalId != null) {
                producer.initTransactions();
            }
        }

        void batch(TopicPartition tp, List<Rec> recs) throws Exception {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (Rec r : recs) {
                ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(tp.topic(), tp.partition(), r.ts, r.key, r.value);
                r.headers.forEach(h -> record.headers().add(h.getKey(), h.getValue()));
                if (r.nullHeader) {
                    record.headers().add("null", null);
                }
                sent.add(producer.send(record));
            }
            producer.flush();
            long expected = -1;
            for (Future<RecordMetadata> f : sent) {
                long offset = f.get().offset();
                if (expected >= 0 && offset != expected) {
                    throw new IllegalStateException(tp + ": offsets of a batch are not consecutive");
                }
                expected = offset + 1;
            }
        }

        void begin() {
            producer.beginTransaction();
        }

        void commit(TopicPartition tp) throws Exception {
            long end = offset(tp, OffsetSpec.latest());
            producer.commitTransaction();
            await("the commit marker", 30, () -> offset(tp, OffsetSpec.latest()) == end + 1);
        }

        void abort(TopicPartition tp) throws Exception {
            long end = offset(tp, OffsetSpec.latest());
            producer.abortTransaction();
            await("the abort marker", 30, () -> offset(tp, OffsetSpec.latest()) == end + 1);
        }
    }

    private static void closeAll(List<Sender> senders) {
        senders.forEach(s -> s.producer.close());
    }

    private static final String[] WORDS = ("accepted amount cancelled carrier city country currency customer delivered "
        + "discount invoice item order paid pending price quantity refund shipped status stock street total warehouse").split(" ");

    /** Text that compresses well. */
    private static byte[] text(Random rnd, int size) {
        StringBuilder b = new StringBuilder(size + 64);
        while (b.length() < size) {
            b.append(WORDS[rnd.nextInt(WORDS.length)]).append("=\"").append(WORDS[rnd.nextInt(WORDS.length)]).append('-')
                .append(rnd.nextInt(10)).append("\"; ");
        }
        return Arrays.copyOf(b.toString().getBytes(StandardCharsets.UTF_8), size);
    }

    /** The same line again and again, but for a number in it. */
    private static byte[] lines(Random rnd, int count) {
        String line = new String(text(rnd, 330), StandardCharsets.UTF_8);
        StringBuilder b = new StringBuilder();
        for (int i = 0; i < count; i++) {
            b.append(rnd.nextInt(1000)).append(": ").append(line).append('\n');
        }
        return b.toString().getBytes(StandardCharsets.UTF_8);
    }

    private static byte[] bytes(Random rnd, int size) {
        byte[] b = new byte[size];
        rnd.nextBytes(b);
        return b;
    }

    private static byte[] utf8(String format, Object... args) {
        return String.format(format, args).getBytes(StandardCharsets.UTF_8);
    }

    private static byte[] concat(byte[] a, byte[] b) {
        byte[] c = Arrays.copyOf(a, a.length + b.length);
        System.arraycopy(b, 0, c, a.length, b.length);
        return c;
    }
}
