#!/usr/bin/perl
# A program of a site: rewrites 10 random lines of a file, and answers with 100 octets.
my $path = $ENV{DATA_FILE};
open(my $in, '<', $path) or die $!;
my @lines = <$in>;
close($in);
for (1 .. 10) {
    $lines[int(rand(@lines))] = join('', map { chr(97 + int(rand(26))) } 1 .. 99) . "\n";
}
# A reader never sees a part of the file.
open(my $out, '>', "$path.$$") or die $!;
print $out @lines;
close($out);
rename("$path.$$", $path) or die $!;
print "Content-Type: text/plain\r\nCache-Control: no-store\r\n\r\n", 'a' x 99, "\n";
