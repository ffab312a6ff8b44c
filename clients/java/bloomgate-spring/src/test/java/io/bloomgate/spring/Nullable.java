package io.bloomgate.spring;

import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;

/** Stands for the annotations of this name, none of which every release of Spring has without a warning of the compiler. */
@Retention(RetentionPolicy.RUNTIME)
@interface Nullable {}
