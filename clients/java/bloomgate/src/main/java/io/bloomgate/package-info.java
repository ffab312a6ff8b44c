/** Bloom filters and a cache guard in a server with the module bloomgate. Begin with {@link io.bloomgate.Bloomgate}. */
@NullMarked
package io.bloomgate;

import org.jspecify.annotations.NullMarked;
