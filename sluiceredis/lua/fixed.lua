-- A fixed window is when it began, in microseconds since 1970, how many units it has
-- counted, how long it is, its offset, and the largest limit that it was asked by. A key
-- holds one for each kind of window, of length and offset, that is not over: programs
-- with different windows share one name while a deploy changes the window. Each unit
-- is counted in all of them, and must fit into all of them.

-- fixed_window returns a window, or nil if it is over. Without a start it begins now.
local function fixed_window(start, used, window, offset, limit)
  local current, latest = now, now
  if offset >= 0 then
    current = now - math.fmod(now - offset, window)
    latest = current + window
  end
  -- A clock that was put back does not bring the allowance back, and excludes no caller
  -- for longer than a window; of aligned ones the next may have begun.
  local w = {start = start or current, used = used, window = window, offset = offset, limit = limit, clamped = 0}
  if w.start > latest then w.start, w.clamped = current, 1 end
  w.ends = w.start + window
  if now >= w.ends then return nil end
  -- One of which something may have been lost is full: the one in which the epoch began
  -- or, as an anchored one may have begun just before, one from then.
  w.till = w.ends
  if offset >= 0 then w.lost = since >= current
  elseif since + window > now then w.lost, w.till = true, since + window end
  return w
end

-- fixed_room returns how many units of a limit a window leaves.
local function fixed_room(w, limit) return limit - (w.lost and math.max(w.used, limit) or w.used) end

-- fixed_read returns the window of KEYS[i], or nil and what to reply.
--
-- ARGV[a]    the limit
-- ARGV[a+1]  the window in microseconds
-- ARGV[a+2]  aligned: where windows begin, in microseconds after multiples of it;
--            -1: anchored at the first call
local function fixed_read(i, a)
  local limit, window, offset = tonumber(ARGV[a]), tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2])
  local value = redis.pcall('GET', KEYS[i])
  if type(value) == 'table' then return nil, failed(value, i) end
  if value and not string.find(value, '^%d') then return nil, unreadable(i) end

  local f = {key = KEYS[i], clamped = 0, taken = 0, others = {}}
  for entry in string.gmatch(value or '', '[^;]+') do
    local from, count, length, anchor, most = string.match(entry, '^(%d+) (%d+) (%d+) (%-?%d+) (%d+)$')
    if not from or math.max(#from, #count, #length, #anchor, #most) > 16 or tonumber(length) == 0 then return nil, unreadable(i) end
    local w = fixed_window(tonumber(from), tonumber(count), tonumber(length), tonumber(anchor), tonumber(most))
    if w then
      f.clamped = math.max(f.clamped, w.clamped)
      if w.window == window and w.offset == offset then f.own = w else f.others[#f.others + 1] = w end
    end
  end
  if not f.own then
    f.fresh, f.own = true, fixed_window(nil, 0, window, offset, limit)
    for _, w in ipairs(f.others) do -- whose units are in this one, too
      if w.start >= f.own.start then f.own.used = math.max(f.own.used, w.used) end
    end
  end
  -- The own window is as full as leaves the room that the others have.
  f.room, f.left = fixed_room(f.own, limit), f.own.till - now
  for _, w in ipairs(f.others) do
    local room = fixed_room(w, w.limit)
    if room < f.room then f.room, f.left = room, w.till - now end
  end
  f.used, f.own.limit = limit - f.room, math.max(f.own.limit, limit)
  return f
end

-- fixed_write writes what was taken, and what is repaired if anything was asked for. A
-- window that was refused because of others is written as well: while it is asked
-- for, it holds those up, too. Otherwise the largest would leave it nothing.
local function fixed_write(f, asked)
  local repairs = f.clamped == 1 or f.fresh and #f.others > 0
  if f.taken == 0 and not f.back and not (repairs and asked) then return end
  f.own.taken = f.taken
  local text, last = {}, 0
  table.insert(f.others, 1, f.own)
  for i, w in ipairs(f.others) do
    text[i] = string.format('%d %d %d %d %d', w.start, w.used + (w.taken or f.taken), w.window, w.offset, w.limit)
    last = math.max(last, w.ends)
  end
  redis.call('SET', f.key, table.concat(text, ';'), 'PX', whole(math.ceil((last - now) / 1000) + 1))
end

-- fixed_add has so many units added to a window without asking, or taken out if
-- negative that were admitted so many microseconds ago, at most. It returns how
-- many.
local function fixed_add(f, delta, age)
  local function added(w)
    -- What was admitted in a window that is over must not be taken off this one.
    if delta < 0 and now - tonumber(age) < w.start then return 0 end
    return math.max(0, math.min(w.used + delta, 1000000000000000)) - w.used
  end
  for _, w in ipairs(f.others) do
    w.taken = added(w)
    f.back = f.back or w.taken ~= 0
  end
  f.taken = added(f.own)
  return math.abs(f.taken)
end

kinds.fixed = {args = 3, found = {'clamped', 'used', 'left'}, read = fixed_read, write = fixed_write, add = fixed_add}
