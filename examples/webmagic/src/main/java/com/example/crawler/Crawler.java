package com.example.crawler;

import java.util.regex.Pattern;
import redis.clients.jedis.JedisPool;
import us.codecraft.webmagic.Page;
import us.codecraft.webmagic.Site;
import us.codecraft.webmagic.Spider;
import us.codecraft.webmagic.processor.PageProcessor;
import us.codecraft.webmagic.scheduler.RedisScheduler;

/** Fetches every page below a URL once, and prints it. The arguments are the server's URL and the URL of the first page. */
public class Crawler implements PageProcessor {
    private final String links;

    private Crawler(String start) {
        links = Pattern.quote(start) + "[^#]*";
    }

    @Override
    public void process(Page page) {
        page.addTargetRequests(page.getHtml().links().regex(links, 0).all());
    }

    @Override
    public Site getSite() {
        return Site.me().setSleepTime(100);
    }

    public static void main(String[] arguments) {
        try (var pool = new JedisPool(arguments[0])) {
            var remover = new BloomDuplicateRemover(pool, 0.001, 1_000_000);
            Spider.create(new Crawler(arguments[1]))
                    .setUUID("example")
                    .setScheduler(new RedisScheduler(pool).setDuplicateRemover(remover))
                    .addUrl(arguments[1])
                    .setEmptySleepTime(1000) // otherwise a spider without pages may wait 30 s
                    .thread(4)
                    .run();
        }
    }
}
