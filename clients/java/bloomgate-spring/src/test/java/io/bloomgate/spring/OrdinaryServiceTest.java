package io.bloomgate.spring;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.bloomgate.Bloomgate;
import io.bloomgate.CreationOptions;
import io.bloomgate.Durability;
import io.bloomgate.Filter;
import io.bloomgate.Servers;
import java.io.IOException;
import java.io.Serializable;
import java.time.LocalDate;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import java.util.function.Predicate;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.springframework.boot.Banner;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.cache.CacheManager;
import org.springframework.cache.annotation.CacheEvict;
import org.springframework.cache.annotation.CachePut;
import org.springframework.cache.annotation.Cacheable;
import org.springframework.cache.annotation.Caching;
import org.springframework.cache.annotation.EnableCaching;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Import;
import org.springframework.data.redis.cache.RedisCache;
import org.springframework.stereotype.Service;

/**
 * Eleven common uses of Spring's annotations, with Spring's own Redis cache and with the guard, which are selected only by the
 * configuration. Each check expects the same result of both.
 */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
class OrdinaryServiceTest {
    private final Servers servers = new Servers();
    private final Map<With, ConfigurableApplicationContext> programs = new EnumMap<>(With.class);
    private Servers.Server server;
    private String url;

    enum Genre { POETRY, PROSE }

    record Shelf(int room, int number) implements Serializable {}

    record Book(long id, String title, String isbn, Genre genre, LocalDate printed, Shelf shelf) implements Serializable {}

    /** A service that does not use the guard's classes. */
    @Service
    static class Books {
        private final Map<Long, Book> table = new ConcurrentHashMap<>();
        private final AtomicInteger reads = new AtomicInteger();

        private List<Book> select(Predicate<Book> condition) {
            reads.incrementAndGet();
            // The list is mutable, because a caller may sort it.
            return new ArrayList<>(table.values().stream().filter(condition).sorted(Comparator.comparing(Book::id)).toList());
        }

        public Map<Long, Book> table() {
            return table;
        }

        /** Returns how often the table was read. */
        public int reads() {
            return reads.get();
        }

        @Cacheable("books")
        public Book get(long id) {
            return select(book -> book.id == id).stream().findFirst().orElseThrow(() -> new NoSuchElementException("no book " + id));
        }

        @Cacheable(cacheNames = "books", unless = "#result == null")
        public Book findOrNull(long id) {
            return select(book -> book.id == id).stream().findFirst().orElse(null);
        }

        @Cacheable("optionals")
        public Optional<Book> find(long id) {
            return select(book -> book.id == id).stream().findFirst();
        }

        @Cacheable("lists")
        public List<Book> sameTitle(long id) {
            return select(book -> table.containsKey(id) && book.title.equals(table.get(id).title));
        }

        @Cacheable("lengths")
        public int titleLength(long id) {
            return select(book -> book.id == id).stream().mapToInt(book -> book.title.length()).sum();
        }

        @Cacheable(cacheNames = "books", key = "'id:' + #id")
        public Book getByText(long id) {
            return get(id);
        }

        @Cacheable("books")
        public Book findByIsbn(String isbn) {
            return select(book -> book.isbn.equals(isbn)).stream().findFirst().orElse(null);
        }

        @Cacheable("lists")
        public List<Book> all() {
            return select(book -> true);
        }

        @Cacheable("lists")
        public List<Book> between(long first, long last) {
            return select(book -> first <= book.id && book.id <= last);
        }

        @Cacheable("lists")
        public List<Book> ofGenre(Genre genre) {
            return select(book -> book.genre == genre);
        }

        @Cacheable("lists")
        public List<Book> printedOn(LocalDate day) {
            return select(book -> book.printed.equals(day));
        }

        @Cacheable("lists")
        public List<Book> on(Shelf shelf) {
            return select(book -> book.shelf.equals(shelf));
        }

        /** Evicts nothing, because nothing is cached. */
        public void add(Book book) {
            table.put(book.id, book);
        }

        @CachePut(cacheNames = "books", key = "#book.id")
        public Book save(Book book) {
            table.put(book.id, book);
            return book;
        }

        @CacheEvict(cacheNames = "optionals", key = "#id")
        public void rename(long id, String title) {
            table.computeIfPresent(id, (same, book) -> new Book(id, title, book.isbn, book.genre, book.printed, book.shelf));
        }

        @Caching(evict = {
            @CacheEvict(cacheNames = "books", key = "#book.id"),
            @CacheEvict(cacheNames = "books", key = "#book.isbn"),
            @CacheEvict(cacheNames = "lists", allEntries = true)
        })
        public void delete(Book book) {
            table.remove(book.id);
        }
    }

    @Configuration
    @EnableCaching
    @EnableAutoConfiguration
    @Import(Books.class)
    static class Application {}

    enum With {
        SPRINGS_CACHE(),
        GUARD("bloomgate.caches.books.ttl=10m", "bloomgate.caches.optionals.filter=books", "bloomgate.caches.lists.filter=books",
                "bloomgate.caches.lengths.filter=books");

        private final String[] properties;

        With(String... properties) {
            this.properties = properties;
        }
    }

    @BeforeAll
    void start() {
        server = servers.start();
        url = "redis://127.0.0.1:" + server.port();
    }

    @AfterAll
    void end() throws IOException {
        programs.values().forEach(ConfigurableApplicationContext::close);
        servers.close();
    }

    private static Book book(long id, String title) {
        return new Book(id, title, "isbn-" + id, Genre.POETRY, LocalDate.EPOCH.plusDays(id), new Shelf(1, (int) id));
    }

    private static final Book ODES = book(17, "Odes");

    /** Returns the service of a program whose table contains the book 17, with an empty cache and a filter that contains the id 17. */
    private Books books(With with) {
        server.commands().flushall();
        try (Bloomgate client = Bloomgate.connect(url)) {
            Filter.fill(client, "books", List.of(17L), 0.001, 1000, CreationOptions.defaults().seed("7"), Durability.NONE);
        }
        ConfigurableApplicationContext program = programs.computeIfAbsent(with, any -> new SpringApplicationBuilder(Application.class)
                .web(WebApplicationType.NONE).bannerMode(Banner.Mode.OFF)
                .properties("spring.data.redis.url=" + url, "spring.cache.type=redis").properties(with.properties).run());
        assertThat(program.getBean(CacheManager.class).getCache("books"))
                .isInstanceOf(with == With.GUARD ? GuardCache.class : RedisCache.class);
        Books books = program.getBean(Books.class);
        books.table().clear();
        books.add(ODES);
        return books;
    }

    /** Waits until a call does not read the table. Spring Data Redis 4 caches in the background. */
    private static void assertCached(Books books, Runnable call) {
        Servers.eventually("the value is cached", () -> {
            int reads = books.reads();
            call.run();
            return books.reads() == reads;
        });
    }

    /** Checks the effect of a write: at once, except with Spring's cache, because Spring Data Redis 4 evicts in the background. */
    private static void assertChanged(With with, BooleanSupplier isChanged) {
        if (with == With.GUARD) {
            assertThat(isChanged.getAsBoolean()).isTrue();
        } else {
            Servers.eventually("the change", isChanged);
        }
    }

    @ParameterizedTest
    @EnumSource
    void anAbsentRowThrowsAsOrElseThrowDoes(With with) {
        Books books = books(with);
        assertThatThrownBy(() -> books.get(18)).isInstanceOf(NoSuchElementException.class).hasMessage("no book 18");
        assertThat(books.get(17)).isEqualTo(ODES);
        assertCached(books, () -> assertThat(books.get(17)).isEqualTo(ODES));
    }

    @ParameterizedTest
    @EnumSource
    void aListIsEmptyIfThereIsNoRow(With with) {
        Books books = books(with);
        assertThat(books.sameTitle(18)).isEmpty();
        assertCached(books, () -> assertThat(books.sameTitle(17)).containsExactly(ODES));
    }

    @ParameterizedTest
    @EnumSource
    void aPrimitiveNumberIsZeroIfThereIsNoRow(With with) {
        Books books = books(with);
        assertThat(books.titleLength(18)).isZero();
        assertCached(books, () -> assertThat(books.titleLength(17)).isEqualTo(4));
    }

    @ParameterizedTest
    @EnumSource
    void anOptionalIsEmptyIfThereIsNoRow(With with) {
        Books books = books(with);
        assertThat(books.find(18)).isEmpty();
        assertCached(books, () -> assertThat(books.find(17)).contains(ODES));
        books.rename(17, "Epodes");
        assertChanged(with, () -> books.find(17).equals(Optional.of(book(17, "Epodes"))));
    }

    @ParameterizedTest
    @EnumSource
    void aKeyIsATextWithTheId(With with) {
        Books books = books(with);
        for (int time = 0; time < 2; time++) {
            assertThat(books.getByText(17)).isEqualTo(ODES);
        }
    }

    @ParameterizedTest
    @EnumSource
    void aRowHasSeveralKeysInOneCache(With with) {
        Books books = books(with);
        for (int time = 0; time < 2; time++) {
            assertThat(books.findByIsbn("isbn-17")).isEqualTo(ODES);
            assertThat(books.findOrNull(17)).isEqualTo(ODES);
        }
        books.delete(ODES);
        assertChanged(with, () -> books.findByIsbn("isbn-17") == null);
        assertChanged(with, () -> books.findOrNull(17) == null);
    }

    @ParameterizedTest
    @EnumSource
    void aRowIsAddedWithoutAnEviction(With with) {
        Books books = books(with);
        Book satires = book(19, "Satires");
        books.add(satires);
        for (int time = 0; time < 2; time++) {
            assertThat(books.get(19)).isEqualTo(satires);
            assertThat(books.find(19)).contains(satires);
        }
    }

    @ParameterizedTest
    @EnumSource
    void aMethodHasNoArgument(With with) {
        Books books = books(with);
        for (int time = 0; time < 2; time++) {
            assertThat(books.all()).containsExactly(ODES);
        }
        books.delete(ODES);
        assertChanged(with, () -> books.all().isEmpty());
    }

    @ParameterizedTest
    @EnumSource
    void aMethodHasTwoArguments(With with) {
        Books books = books(with);
        for (int time = 0; time < 2; time++) {
            assertThat(books.between(10, 20)).containsExactly(ODES);
            assertThat(books.between(20, 10)).isEmpty();
            assertThat(books.between(1, 0)).isEmpty();
        }
    }

    @ParameterizedTest
    @EnumSource
    void anArgumentIsAnEnumADateOrARecord(With with) {
        Books books = books(with);
        for (int time = 0; time < 2; time++) {
            assertThat(books.ofGenre(Genre.POETRY)).containsExactly(ODES);
            assertThat(books.ofGenre(Genre.PROSE)).isEmpty();
            assertThat(books.printedOn(LocalDate.EPOCH.plusDays(17))).containsExactly(ODES);
            assertThat(books.printedOn(LocalDate.EPOCH)).isEmpty();
            assertThat(books.on(new Shelf(1, 17))).containsExactly(ODES);
            assertThat(books.on(new Shelf(17, 1))).isEmpty();
        }
    }

    @ParameterizedTest
    @EnumSource
    void anAbsenceIsNotCachedUnlessNull(With with) {
        Books books = books(with);
        assertThat(books.findOrNull(18)).isNull();
        books.add(book(18, "Epistles"));
        assertThat(books.findOrNull(18)).isEqualTo(book(18, "Epistles"));
        books.save(book(18, "Letters"));
        assertChanged(with, () -> books.findOrNull(18).equals(book(18, "Letters")));
        assertCached(books, () -> assertThat(books.findOrNull(18)).isEqualTo(book(18, "Letters")));
    }
}
