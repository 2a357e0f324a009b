package segtier.testdata;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import java.util.concurrent.TimeUnit;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;

/** The steps of the generator; the script beside pom.xml runs them in order. */
public final class Main {
    private Main() {}

    public static void main(String[] args) throws Exception {
        Env env = new Env(Path.of(args[1]), Path.of(args[2]));
        switch (args[0]) {
            case "configure" -> configure(env);
            case "await-broker" -> awaitBroker(env);
            case "phase1" -> new Produce(env).phase1();
            case "phase2" -> new Produce(env).phase2();
            case "phase3" -> new Produce(env).phase3();
            case "ask-broker" -> new AskBroker(env).run();
            case "collect" -> new Collect(env).run();
            default -> throw new IllegalArgumentException("unknown step " + args[0]);
        }
        System.out.flush();
        // Producers with an open transaction must not get to close it.
        Runtime.getRuntime().halt(0);
    }

    /** Where things are. */
    record Env(Path work, Path out) {
        Path data() {
            return work.resolve("data");
        }

        Path remote() {
            return work.resolve("remote").resolve("kafka-tiered-storage");
        }

        Path partition(String name) {
            return data().resolve(name);
        }

        String bootstrap() {
            Properties p = new Properties();
            try (var in = Files.newBufferedReader(work.resolve("server.properties"))) {
                p.load(in);
            } catch (IOException e) {
                throw new IllegalStateException(e);
            }
            return p.getProperty("advertised.listeners").replaceFirst("^.*//", "");
        }

        Admin admin() {
            Properties p = new Properties();
            p.put(AdminClientConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap());
            p.put(AdminClientConfig.ENABLE_METRICS_PUSH_CONFIG, false);
            p.put(AdminClientConfig.RECONNECT_BACKOFF_MS_CONFIG, 100);
            return Admin.create(p);
        }
    }

    static void say(String format, Object... args) {
        System.out.println(String.format(format, args));
    }

    interface Condition {
        boolean holds() throws Exception;
    }

    /** Polls until the condition holds; errors count as "not yet". */
    static void await(String what, int seconds, Condition c) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
        Exception last = null;
        while (System.nanoTime() < deadline) {
            try {
                if (c.holds()) {
                    return;
                }
                last = null;
            } catch (InterruptedException e) {
                throw e;
            } catch (Exception e) {
                last = e;
            }
            Thread.sleep(50);
        }
        throw new IllegalStateException("waited " + seconds + " s in vain for: " + what, last);
    }

    private static void configure(Env env) throws IOException {
        InetAddress loopback = InetAddress.getLoopbackAddress();
        int port;
        int controllerPort;
        try (ServerSocket a = new ServerSocket(0, 1, loopback); ServerSocket b = new ServerSocket(0, 1, loopback)) {
            port = a.getLocalPort();
            controllerPort = b.getLocalPort();
        }
        String host = "127.0.0.1";
        String text = String.join("\n",
            "process.roles=broker,controller",
            "node.id=1",
            "controller.quorum.voters=1@" + host + ":" + controllerPort,
            "listeners=PLAINTEXT://" + host + ":" + port + ",CONTROLLER://" + host + ":" + controllerPort,
            "advertised.listeners=PLAINTEXT://" + host + ":" + port,
            "controller.listener.names=CONTROLLER",
            "inter.broker.listener.name=PLAINTEXT",
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs=" + env.data(),
            "auto.create.topics.enable=false",
            "num.network.threads=2",
            "num.io.threads=2",
            "background.threads=2",
            "offsets.topic.num.partitions=1",
            "offsets.topic.replication.factor=1",
            "transaction.state.log.num.partitions=1",
            "transaction.state.log.replication.factor=1",
            "transaction.state.log.min.isr=1",
            "log.segment.delete.delay.ms=100",
            "log.cleaner.backoff.ms=300",
            "log.cleaner.dedupe.buffer.size=16777216",
            "log.retention.check.interval.ms=1000",
            "log.initial.task.delay.ms=1000",
            "remote.log.storage.system.enable=true",
            "remote.log.metadata.manager.listener.name=PLAINTEXT",
            "remote.log.storage.manager.class.name=org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
            "remote.log.storage.manager.impl.prefix=rsm.config.",
            "remote.log.metadata.manager.impl.prefix=rlmm.config.",
            "rsm.config.dir=" + env.work().resolve("remote"),
            "rlmm.config.remote.log.metadata.topic.replication.factor=1",
            "rlmm.config.remote.log.metadata.topic.num.partitions=5",
            "remote.log.manager.task.interval.ms=500",
            "");
        Files.writeString(env.work().resolve("server.properties"), text);
        say("broker on %s:%d, controller on %s:%d", host, port, host, controllerPort);
    }

    private static void awaitBroker(Env env) throws Exception {
        try (Admin admin = env.admin()) {
            await("the broker to answer", 90, () ->
                admin.describeCluster().nodes().get(5, TimeUnit.SECONDS).size() == 1);
            var names = admin.listTopics().names().get();
            await("all partitions to have a leader", 60, () ->
                admin.describeTopics(names).allTopicNames().get(5, TimeUnit.SECONDS).values().stream()
                    .allMatch(t -> t.partitions().stream().allMatch(p -> p.leader() != null && p.leader().id() == 1)));
        }
    }
}
