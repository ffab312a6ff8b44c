package io.bloomgate;

import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.internal.ExceptionFactory;
import java.lang.reflect.Modifier;
import java.util.Arrays;
import java.util.List;

/** Copies errors of other threads, so that the stack trace contains the line of the blocking call that throws them. */
final class Rethrown {
    private Rethrown() {}

    /** Whether the stack trace of an error contains the callers of a method, because the error was created below that method. */
    static boolean names(Throwable error, Throwable method) {
        List<StackTraceElement> lines = Arrays.asList(error.getStackTrace());
        List<StackTraceElement> callers = Arrays.asList(method.getStackTrace());
        callers = callers.subList(Math.min(1, callers.size()), callers.size());
        return lines.size() >= callers.size() && lines.subList(lines.size() - callers.size(), lines.size()).equals(callers);
    }

    /** Returns a copy of an error with this stack trace, or the error itself if a copy may be incomplete. */
    static RuntimeException here(RuntimeException error) {
        if (error instanceof BloomgateException own) {
            return own.here();
        }
        if (error instanceof RedisCommandExecutionException) {
            return ExceptionFactory.createExecutionException(error.getMessage(), error);
        }
        try {
            for (Class<?> type = error.getClass(); type != Throwable.class; type = type.getSuperclass()) {
                if (!Arrays.stream(type.getDeclaredFields()).allMatch(field -> Modifier.isStatic(field.getModifiers()))) {
                    return error;
                }
            }
            // An error of a loader in another thread.
            RuntimeException copy = error.getClass().getConstructor(String.class, Throwable.class).newInstance(error.getMessage(), error);
            return String.valueOf(copy.getMessage()).equals(String.valueOf(error.getMessage())) ? copy : error;
        } catch (ReflectiveOperationException | RuntimeException impossible) {
            return error;
        }
    }
}
