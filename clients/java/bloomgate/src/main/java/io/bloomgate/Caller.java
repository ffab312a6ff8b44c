package io.bloomgate;

import io.lettuce.core.RedisCommandExecutionException;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Executor;
import java.util.concurrent.FutureTask;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Function;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * A call of the package, as a sequence of steps. The steps of a blocking call run in the caller's thread, so that a loader finds its
 * transaction there. The steps of an asynchronous call run in the thread of the awaited event.
 */
final class Caller implements Executor {
    final Signal signal = new Signal();
    private final Bloomgate client;
    private final @Nullable Thread thread;
    private final @Nullable Queue<Runnable> tasks;
    private volatile boolean hasEnded;
    private boolean isInterrupted;

    private Caller(Bloomgate client, @Nullable Thread thread) {
        this.client = client;
        this.thread = thread;
        tasks = thread == null ? null : new ConcurrentLinkedQueue<>();
    }

    /** Whether a thread receives the replies of servers. */
    private static final ThreadLocal<Boolean> RECEIVES_REPLIES = new ThreadLocal<>();

    /** Records that this thread receives the replies of servers. A blocking call in it would wait for itself. */
    static void markReceivesReplies() {
        if (RECEIVES_REPLIES.get() == null) {
            RECEIVES_REPLIES.set(true);
        }
    }

    /** Creates a caller without a waiting thread. */
    static Caller asynchronous(Bloomgate client) {
        return new Caller(client, null);
    }

    /** Begins an asynchronous call. Cancelling the returned future aborts it. */
    static <T extends @Nullable Object> CompletableFuture<T> begin(Bloomgate client, Function<Caller, CompletableFuture<T>> steps) {
        Caller caller = asynchronous(client);
        CompletableFuture<T> result = new CompletableFuture<>();
        attempt(() -> steps.apply(caller)).whenComplete((value, error) -> settle(result, value, error));
        result.whenComplete((value, error) -> {
            if (result.isCancelled()) {
                caller.signal.abort();
            }
        });
        return result;
    }

    /** Makes a call in this thread. An interrupt aborts it: it throws CancellationException, and leaves the thread interrupted. */
    static <T extends @Nullable Object> T block(Bloomgate client, Function<Caller, CompletableFuture<T>> steps) {
        return new Caller(client, Thread.currentThread()).pump(steps, true);
    }

    /** {@link #block} for a call that must be completed: an interrupt does not abort it. */
    static <T extends @Nullable Object> T blockUninterrupted(Bloomgate client, Function<Caller, CompletableFuture<T>> steps) {
        return new Caller(client, Thread.currentThread()).pump(steps, false);
    }

    private <T extends @Nullable Object> T pump(Function<Caller, CompletableFuture<T>> steps, boolean isInterruptible) {
        if (RECEIVES_REPLIES.get() != null) {
            throw new IllegalStateException("this thread of Lettuce delivers the replies for which a blocking call would wait: "
                    + "call a method that returns a future, or call this one in another thread, by thenApplyAsync for instance");
        }
        CompletableFuture<T> result = null;
        try {
            recordInterrupt(isInterruptible);
            result = steps.apply(this);
            result.whenComplete((value, error) -> LockSupport.unpark(thread));
            while (!result.isDone()) {
                Runnable task = tasks.poll();
                if (task != null) {
                    task.run();
                } else {
                    LockSupport.park(this);
                }
                recordInterrupt(isInterruptible);
            }
        } finally {
            hasEnded = true;
            drain();
            if (isInterrupted) {
                thread.interrupt();
            }
        }
        try {
            return value(result);
        } catch (BloomgateException | RedisCommandExecutionException error) {
            throw Rethrown.names(error, new Throwable()) ? error : Rethrown.here(error);
        }
    }

    /** Converts the failure of another call's load to the error that this call throws. */
    Throwable shared(Throwable failure) {
        return thread != null && failure instanceof RuntimeException error ? Rethrown.here(error) : failure;
    }

    private void recordInterrupt(boolean isInterruptible) {
        if (thread.isInterrupted()) {
            isInterrupted = true;
            if (isInterruptible) {
                signal.abort();
            }
            Thread.interrupted();
        }
    }

    /** Runs a step. After the end of a blocking call, steps such as giving up a lease run at once. */
    @Override
    public void execute(Runnable task) {
        if (thread == null) {
            task.run();
            return;
        }
        tasks.add(task);
        if (hasEnded) {
            drain();
        } else if (Thread.currentThread() != thread) {
            LockSupport.unpark(thread);
        }
    }

    /** Runs a step after an event of the client's timer. No step may run in the timer's thread, which serves all calls. */
    void executeAfterTimer(Runnable task) {
        if (thread != null && !hasEnded) {
            execute(task);
            return;
        }
        try {
            client.executor.execute(task);
        } catch (RejectedExecutionException closed) {
            execute(task);
        }
    }

    private void drain() {
        for (Runnable task = tasks.poll(); task != null; task = tasks.poll()) {
            task.run();
        }
    }

    /** Calls a function that blocks: here if this thread waits for it, or else in the client's executor. */
    <T extends @Nullable Object> CompletableFuture<T> run(Callable<T> function) {
        CompletableFuture<T> result = new CompletableFuture<>();
        if (Thread.currentThread() == thread) {
            try {
                result.complete(function.call());
            } catch (Throwable error) {
                // An interrupt during a load ends the call, even if the loader converts it to another exception.
                if (error instanceof InterruptedException || Thread.currentThread().isInterrupted()) {
                    Thread.interrupted();
                    isInterrupted = true;
                    signal.abort();
                    result.completeExceptionally(new CancellationException("the thread was interrupted"));
                } else {
                    result.completeExceptionally(error);
                }
            }
            return result;
        }
        FutureTask<Void> task = new FutureTask<>(() -> {
            try {
                result.complete(function.call());
            } catch (Throwable error) {
                result.completeExceptionally(error);
            }
            return null;
        });
        client.executor.execute(task);
        result.whenComplete((value, error) -> {
            if (result.isCancelled()) {
                task.cancel(true);
            }
        });
        return untilCancelled(result);
    }

    /** Awaits a future in this call's steps. If the call is aborted, ends with CancellationException; the future continues. */
    <T extends @Nullable Object> CompletableFuture<T> until(CompletableFuture<T> future) {
        CompletableFuture<T> result = new CompletableFuture<>();
        Runnable abort =
                () -> execute(() -> result.completeExceptionally(new CancellationException("the call was cancelled")));
        signal.add(abort);
        future.whenComplete((value, error) -> {
            signal.remove(abort);
            execute(() -> settle(result, value, error));
        });
        return result;
    }

    /** {@link #until} for a future that is cancelled with the call. */
    <T extends @Nullable Object> CompletableFuture<T> untilCancelled(CompletableFuture<T> future) {
        CompletableFuture<T> result = until(future);
        result.whenComplete((value, error) -> {
            if (signal.isAborted()) {
                future.cancel(true);
            }
        });
        return result;
    }

    /** Waits until a future has completed, normally or not, or for `ms` milliseconds. Returns whether it has completed. */
    CompletableFuture<Boolean> settles(CompletableFuture<?> future, long ms) {
        CompletableFuture<Boolean> either = new CompletableFuture<>();
        future.whenComplete((value, error) -> either.complete(true));
        either.completeOnTimeout(false, ms, TimeUnit.MILLISECONDS);
        // The JDK has one thread for all timers: no steps may run there.
        CompletableFuture<Boolean> settled = thread == null ? either.thenApplyAsync(hasEnded -> hasEnded, client.executor) : either;
        settled.whenComplete((hasEnded, error) -> either.cancel(false));
        return untilCancelled(settled);
    }

    CompletableFuture<Boolean> pause(long ms) {
        return settles(new CompletableFuture<>(), ms);
    }

    /** Begins steps. An exception becomes the failure of the returned future. */
    static <T extends @Nullable Object> CompletableFuture<T> attempt(Supplier<CompletableFuture<T>> steps) {
        try {
            return steps.get();
        } catch (Throwable error) {
            return CompletableFuture.failedFuture(error);
        }
    }

    static <T extends @Nullable Object> void settle(CompletableFuture<T> future, T value, @Nullable Throwable error) {
        if (error == null) {
            future.complete(value);
        } else {
            future.completeExceptionally(cause(error));
        }
    }

    /** Returns an error without CompletableFuture's wrappers. */
    static Throwable cause(Throwable error) {
        while (error instanceof CompletionException && error.getCause() != null) {
            error = error.getCause();
        }
        return error;
    }

    /** Returns the value of a completed future, or throws its error, a checked one inside a CompletionException. */
    static <T extends @Nullable Object> T value(CompletableFuture<T> future) {
        try {
            return future.join();
        } catch (CompletionException wrapped) {
            Throwable error = cause(wrapped);
            if (error instanceof RuntimeException unchecked) {
                throw unchecked;
            }
            if (error instanceof Error fatal) {
                throw fatal;
            }
            throw new CompletionException(error);
        }
    }

    /** Notifies the parts of a call that it was cancelled, or that its thread was interrupted. */
    static final class Signal {
        private final Set<Runnable> listeners = new LinkedHashSet<>();
        private boolean aborted;

        synchronized boolean isAborted() {
            return aborted;
        }

        /** Calls a listener when the call is aborted, or at once if it already is. */
        void add(Runnable listener) {
            synchronized (this) {
                if (!aborted) {
                    listeners.add(listener);
                    return;
                }
            }
            listener.run();
        }

        synchronized void remove(Runnable listener) {
            listeners.remove(listener);
        }

        void abort() {
            List<Runnable> called;
            synchronized (this) {
                aborted = true;
                called = List.copyOf(listeners);
                listeners.clear();
            }
            called.forEach(Runnable::run);
        }
    }
}
