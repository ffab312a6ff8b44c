/** Bloom filters and a cache guard for servers with the bloomgate module. Start with {@link io.bloomgate.Bloomgate}. */
@NullMarked
package io.bloomgate;

import org.jspecify.annotations.NullMarked;
