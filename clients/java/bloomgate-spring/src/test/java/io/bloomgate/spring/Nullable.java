package io.bloomgate.spring;

import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;

/** Replaces the annotations of this name, because none of them exists in every release of Spring without a compiler warning. */
@Retention(RetentionPolicy.RUNTIME)
@interface Nullable {}
