package io.bloomgate.spring;

import ch.qos.logback.classic.Level;
import ch.qos.logback.classic.Logger;
import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.core.read.ListAppender;
import java.util.List;
import org.slf4j.LoggerFactory;

/** The lines that the starter logs while this is open, with their levels. */
final class Logged implements AutoCloseable {
    private final Logger logger = (Logger) LoggerFactory.getLogger("io.bloomgate.spring");
    private final ListAppender<ILoggingEvent> appender = new ListAppender<>();

    Logged() {
        appender.start();
        logger.setLevel(Level.INFO);
        logger.addAppender(appender);
    }

    List<String> lines() {
        return List.copyOf(appender.list).stream().map(event -> event.getLevel() + " " + event.getFormattedMessage()).toList();
    }

    @Override
    public void close() {
        logger.detachAppender(appender);
        logger.setLevel(null);
    }
}
