-- Takes from all of several limits, or from none.
--
-- KEYS     one for each limit and, in strict mode, the epoch
-- ARGV     as read_all wants them; then runs: how many equal requests follow one
--          another, and what one takes of each limit, in what that counts; 0 if
--          nothing. Without any run the limits are only looked at.
--
-- Replies {0, requests granted; of each limit what its read found; for each run: when the
-- next of its requests would fit into each sliding window, or 0; now}. Which requests were
-- granted and what a limit would have said follows from that: see request.decide.
local limits, a = read_all()
if not limits then return a end
local reply, asked = {0, 0}, a <= #ARGV
for _, l in ipairs(limits) do
  for _, what in ipairs(l.of.found) do reply[#reply + 1] = l[what] end
end
while a <= #ARGV do
  local fit = tonumber(ARGV[a])
  for i, l in ipairs(limits) do
    local n = tonumber(ARGV[a + i])
    if n > 0 then fit = (l.of.fits or fits)(l, n, fit) end
  end
  reply[2] = reply[2] + fit
  for i, l in ipairs(limits) do
    local n = tonumber(ARGV[a + i])
    l.taken = l.taken + fit * n
    if l.of.when then reply[#reply + 1] = n > 0 and l.of.when(l, n) or 0 end
  end
  a = a + 1 + #limits
end
for _, l in ipairs(limits) do l.of.write(l, asked) end
reply[#reply + 1] = now
return reply
