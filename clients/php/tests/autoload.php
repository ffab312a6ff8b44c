<?php declare(strict_types=1);

/** Loads the package, and the libraries that Debian installs, without Composer. */

namespace Bloomgate\Tests;

/** @return array<string, string> the files of the package by class, found like Composer does */
function classMap(): array {
    $map = [];
    foreach (glob(__DIR__ . '/{.,../src,../src/Laravel}/[A-Z]*.php', GLOB_BRACE) as $file) {
        $text = file_get_contents($file);
        preg_match('/^namespace (.+);/m', $text, $namespace);
        preg_match_all('/^(?:final |abstract )?(?:class|interface) (\w+)/m', $text, $classes);
        $map += array_fill_keys(array_map(fn ($class) => "$namespace[1]\\$class", $classes[1]), $file);
    }
    return $map;
}

$map = classMap();
spl_autoload_register(function (string $class) use ($map): void {
    if (isset($map[$class])) require_once $map[$class];
});
foreach (['Predis', 'Psr/SimpleCache', 'Illuminate/Cache'] as $library) {
    if (stream_resolve_include_path("$library/autoload.php") !== false) require_once "$library/autoload.php";
}
