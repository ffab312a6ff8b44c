<?php declare(strict_types=1);

namespace Bloomgate\Tests;

final class ReadmeTest extends ServerTestCase {
    /** Runs the code of README.md as one program, except Laravel's, which needs an application. */
    public function testCodePrintsWhatThePageShows(): void {
        preg_match_all('/^```(php|text)\n(.*?)^```$/ms', file_get_contents(__DIR__ . '/../README.md'), $blocks, PREG_SET_ORDER);
        [$code, $shown] = ['', ''];
        foreach ($blocks as [, $language, $text]) {
            if ($language === 'text') $shown .= $text;
            elseif (!str_contains($text, 'Cache::extend')) $code .= $text;
        }
        $this->assertSame($shown, $this->printed($code));
    }

    private function printed(string $code): string {
        $code = preg_replace('/\'localhost\', 6379/', "'127.0.0.1', " . self::$server->port, $code);
        $file = tempnam(sys_get_temp_dir(), 'bloomgate');
        file_put_contents($file, "<?php require '" . __DIR__ . "/autoload.php';\nini_set('zend.assertions', '1');\n$code");
        exec(PHP_BINARY . ' -d zend.assertions=1 ' . escapeshellarg($file) . ' 2>&1', $lines);
        unlink($file);
        return $lines ? implode("\n", $lines) . "\n" : '';
    }
}
