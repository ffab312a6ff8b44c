# Installs the module and the command-line tool with Homebrew, which installs formulae only from taps. This repository is a tap:
#
#   brew tap bloomgate/bloomgate "$PWD"
#   brew install --HEAD bloomgate/bloomgate/bloomgate
#
# The formula builds the branch main, because there is no release to download yet.
class Bloomgate < Formula
  desc "Bloom filters inside Redis and Valkey: a module with the BF.* commands, and a tool"
  homepage "https://bloomgate.invalid"
  license any_of: ["MIT", "Apache-2.0"]
  head "file://#{File.expand_path("..", __dir__)}", using: :git, branch: "main"

  depends_on "llvm" => :build
  depends_on "rust" => :build
  depends_on "redis"

  def install
    ENV["LIBCLANG_PATH"] = Formula["llvm"].opt_lib
    system "cargo", "build", "--locked", "--release", "--package", "bloomgate"
    (lib/"redis/modules").install "target/release/#{shared_library("libbloomgate")}"
    system "cargo", "install", *std_cargo_args(path: "crates/tool")
    generate_completions_from_executable(bin/"bloomgate", "completions")
    mkdir "man"
    system bin/"bloomgate", "man", "man"
    man1.install Dir["man/*.1"]
    doc.install "redis.conf.example", "docs"
  end

  def caveats
    <<~TEXT
      To load the module, add to #{etc}/redis.conf:
        loadmodule #{opt_lib}/redis/modules/#{shared_library("libbloomgate")}
    TEXT
  end

  test do
    port = free_port
    library = lib/"redis/modules"/shared_library("libbloomgate")
    server = spawn Formula["redis"].opt_bin/"redis-server", "--port", port.to_s, "--loadmodule", library.to_s
    sleep 2
    assert_equal "1", shell_output("#{Formula["redis"].opt_bin}/redis-cli -p #{port} BF.ADD seen one").strip
  ensure
    Process.kill "TERM", server
  end
end
