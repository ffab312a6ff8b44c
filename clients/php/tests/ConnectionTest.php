<?php declare(strict_types=1);

namespace Bloomgate\Tests;

use Bloomgate\{Connection, ConnectionLost, Filter, ModuleMissing, ServerError, TimedOut};

final class ConnectionTest extends ServerTestCase {
    /** @dataProvider libraries */
    public function testLateReplyIsNotReadByAnotherCall(string $library): void {
        $connection = $this->connection($library, 0.2);
        $id = $connection->one(['CLIENT', 'ID']);
        try {
            $connection->one(['BLPOP', 'nothing', '1']);
            $this->fail('it has answered');
        } catch (TimedOut) {
        }
        $this->assertSame('next', $connection->one(['ECHO', 'next']));
        $this->assertNotSame($id, $connection->one(['CLIENT', 'ID']));
    }

    /** @dataProvider libraries */
    public function testExceptionInsideACommandClosesTheConnection(string $library): void {
        $connection = $this->connection($library, 5);
        $connection->one(['PING']);
        pcntl_async_signals(true);
        pcntl_signal(SIGALRM, fn () => throw new \DomainException('from a signal handler'), false);
        pcntl_alarm(1);
        try {
            $connection->ask([['BLPOP', 'nothing', '2'], ['ECHO', 'one']]);
            $this->fail('it was not interrupted');
        } catch (\DomainException | ConnectionLost) {
        } finally {
            pcntl_alarm(0);
            pcntl_async_signals(false);
        }
        $this->assertSame('next', $connection->one(['ECHO', 'next']));
    }

    /** A lost command is never reported as answered with nil. @dataProvider libraries */
    public function testKilledConnectionIsAnError(string $library): void {
        for ($round = 0; $round < 20; $round++) {
            $connection = $this->connection($library);
            self::$server->send('CLIENT', 'KILL', 'ID', $connection->one(['CLIENT', 'ID']));
            try {
                // phpredis may notice the loss before it sends, and reconnect.
                $this->assertSame('sent', $connection->one(['ECHO', 'sent']));
            } catch (ConnectionLost) {
            }
            $this->assertSame('next', $connection->one(['ECHO', 'next']));
        }
    }

    /** @dataProvider libraries */
    public function testConnectionThatIsLostInTheMiddle(string $library): void {
        $filter = new Filter($connection = $this->connection($library), 'seen');
        $filter->add(1);
        self::$server->send('CONFIG', 'SET', 'client-query-buffer-limit', '1048576');
        try {
            $filter->addMany([2, str_repeat('x', 5 << 20)]);
            $this->fail('the server has closed the connection');
        } catch (ConnectionLost $error) {
            $this->assertSame([null, null], array_slice($error->answers, -2));
        } finally {
            self::$server->send('CONFIG', 'SET', 'client-query-buffer-limit', '1073741824');
        }
        $this->assertTrue($filter->exists(1));
        $this->assertSame('next', $connection->one(['ECHO', 'next']));
    }

    /** phpredis returns false both for nil and for a command that it could not write. @dataProvider libraries */
    public function testCommandThatCouldNotBeWrittenIsAnError(string $library): void {
        self::$server->send('CONFIG', 'SET', 'client-query-buffer-limit', '1048576');
        try {
            $this->connection($library, 30)->one(['BF.CHANGED', 'users', str_repeat('x', 40 << 20), '{users}:1']);
            $this->fail('the server has closed the connection');
        } catch (ConnectionLost $error) {
            $this->assertNotInstanceOf(TimedOut::class, $error);
        } finally {
            self::$server->send('CONFIG', 'SET', 'client-query-buffer-limit', '1073741824');
        }
    }

    /** @dataProvider libraries */
    public function testErrorsInAPipeline(string $library): void {
        $connection = $this->connection($library);
        $replies = $connection->ask([['SET', 'a', '1'], ['BF.NOTHING', 'a'], ['GET', 'a']]);
        $this->assertSame('1', $replies[2]);
        $this->assertInstanceOf(ModuleMissing::class, $replies[1]);
        $connection->one(['ACL', 'SETUSER', 'default', '-bf.card']);
        try {
            $this->assertInstanceOf(ServerError::class, $connection->ask([['GET', 'a'], ['BF.CARD', 'a'], ['GET', 'a']])[1]);
            $this->assertSame('1', $connection->one(['GET', 'a']));
        } finally {
            $connection->one(['ACL', 'SETUSER', 'default', '+bf.card']);
        }
    }

    /** @dataProvider libraries */
    public function testUnreachableServerIsALostConnection(string $library): void {
        $this->expectException(ConnectionLost::class);
        Clients::connection($library, 1)->one(['PING']);
    }
}
