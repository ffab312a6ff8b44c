package io.bloomgate.spring;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.springframework.transaction.TransactionDefinition;
import org.springframework.transaction.TransactionSystemException;
import org.springframework.transaction.support.AbstractPlatformTransactionManager;
import org.springframework.transaction.support.DefaultTransactionStatus;

/** A database for tests with one table. The writes of a transaction are visible to others after its commit. */
final class Database extends AbstractPlatformTransactionManager {
    final transient Map<Long, String> table = new ConcurrentHashMap<>();
    transient boolean isOutcomeUnknown;
    private final transient ThreadLocal<Map<Long, String>> written = new ThreadLocal<>();

    /** Reads a row in the view of this thread's transaction. */
    String find(long id) {
        return written.get() != null && written.get().containsKey(id) ? written.get().get(id) : table.get(id);
    }

    void save(long id, String name) {
        (written.get() == null ? table : written.get()).put(id, name);
    }

    @Override
    protected Object doGetTransaction() {
        return this;
    }

    @Override
    protected void doBegin(Object transaction, TransactionDefinition definition) {
        written.set(new HashMap<>());
    }

    @Override
    protected void doCommit(DefaultTransactionStatus status) {
        if (isOutcomeUnknown) {
            throw new TransactionSystemException("the connection was lost during the commit");
        }
        table.putAll(written.get());
    }

    @Override
    protected void doRollback(DefaultTransactionStatus status) {
        written.get().clear();
    }

    @Override
    protected void doCleanupAfterCompletion(Object transaction) {
        written.remove();
    }
}
