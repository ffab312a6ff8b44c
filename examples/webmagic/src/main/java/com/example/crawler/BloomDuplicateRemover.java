package com.example.crawler;

import java.util.List;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPool;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.util.SafeEncoder;
import us.codecraft.webmagic.Request;
import us.codecraft.webmagic.Task;
import us.codecraft.webmagic.scheduler.component.DuplicateRemover;

/** A filter on the server with the links of a task, which all of its spiders share. The key is {@code seen_} and the task's UUID. */
public class BloomDuplicateRemover implements DuplicateRemover {
    private static final ProtocolCommand INSERT = () -> SafeEncoder.encode("BF.INSERT");
    private static final ProtocolCommand CARD = () -> SafeEncoder.encode("BF.CARD");

    private final JedisPool pool;
    private final String rate;
    private final String capacity;

    /** Of the new links, {@code rate} are mistaken for duplicates. Above {@code capacity} links, the filter grows. */
    public BloomDuplicateRemover(JedisPool pool, double rate, long capacity) {
        this.pool = pool;
        this.rate = Double.toString(rate);
        this.capacity = Long.toString(capacity);
    }

    @Override
    public boolean isDuplicate(Request request, Task task) {
        try (Jedis jedis = pool.getResource()) {
            Object answers = jedis.sendCommand(
                    INSERT, key(task), "ERROR", rate, "CAPACITY", capacity, "ITEMS", request.getUrl());
            return (Long) ((List<?>) answers).get(0) == 0;
        }
    }

    @Override
    public void resetDuplicateCheck(Task task) {
        try (Jedis jedis = pool.getResource()) {
            jedis.unlink(key(task));
        }
    }

    @Override
    public int getTotalRequestsCount(Task task) {
        try (Jedis jedis = pool.getResource()) {
            return Math.toIntExact((Long) jedis.sendCommand(CARD, key(task)));
        }
    }

    private static String key(Task task) {
        return "seen_" + task.getUUID();
    }
}
