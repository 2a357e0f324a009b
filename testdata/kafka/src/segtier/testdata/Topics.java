package segtier.testdata;

import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** The topics that are made, with their settings. */
final class Topics {
    private Topics() {}

    record Topic(String name, int partitions, boolean tiered, Map<String, String> configs) {}

    static final String ORDERS = "orders.eu-west_1";
    static final String PAYMENTS = "payments.tx_commit-abort";
    static final String SENSORS = "sensor-readings.v2_raw";
    static final String LEDGER = "ledger.open-tx_1";
    static final String METRICS = "metrics.append-time_log";
    static final String USERS = "users.compact_state-1";
    static final String ACCOUNTS = "accounts.tx-compact_1";
    static final String BLOBS = "blobs.large-record_1";
    static final String EVENTS = "events.wide-segment_1";
    static final String AUDIT = "audit.trimmed-start_1";
    static final String ARCHIVE = "archive.expired-segments_1";
    static final String SCRATCH = "scratch.deleted-topic_1";

    static final List<Topic> ALL = List.of(
        topic(ORDERS, 2, true, "internal.segment.bytes=20480"),
        topic(PAYMENTS, 1, true, "internal.segment.bytes=12288"),
        topic(SENSORS, 1, true, "internal.segment.bytes=12288"),
        topic(LEDGER, 1, true, "internal.segment.bytes=8192"),
        topic(METRICS, 1, false, "message.timestamp.type=LogAppendTime", "index.interval.bytes=1", "segment.index.bytes=96"),
        topic(USERS, 1, false, "cleanup.policy=compact", "internal.segment.bytes=8192", "min.cleanable.dirty.ratio=1.0",
            "delete.retention.ms=86400000"),
        topic(ACCOUNTS, 1, false, "cleanup.policy=compact", "internal.segment.bytes=6144", "min.cleanable.dirty.ratio=1.0",
            "delete.retention.ms=86400000"),
        topic(BLOBS, 1, false, "internal.segment.bytes=1200000", "max.message.bytes=2097152"),
        topic(EVENTS, 1, false, "internal.segment.bytes=2800000"),
        topic(AUDIT, 2, false, "internal.segment.bytes=6144"),
        topic(ARCHIVE, 1, true, "internal.segment.bytes=4096"),
        topic(SCRATCH, 1, true, "internal.segment.bytes=4096"));

    private static Topic topic(String name, int partitions, boolean tiered, String... configs) {
        Map<String, String> m = new TreeMap<>();
        m.put("retention.ms", "-1");
        if (tiered) {
            m.put("remote.storage.enable", "true");
        }
        for (String c : configs) {
            int eq = c.indexOf('=');
            m.put(c.substring(0, eq), c.substring(eq + 1));
        }
        return new Topic(name, partitions, tiered, m);
    }
}
