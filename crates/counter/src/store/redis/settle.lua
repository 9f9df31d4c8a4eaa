-- Ends a hold: Ledger::settle, withdraw and release.
--
-- ARGV: settle|withdraw|release, id, number of entries, and for each entry: name, kind, span, amount, burst, spent.
-- Answers: leases ended, and
--   0 closed | 1 corrected after its lease | 2 unknown | 3 duplicate, and for each account: name, before, spent,
--   refunded, debt
--   4 full, the index of the entry without an account
local CLOSED, CORRECTED, UNKNOWN, DUPLICATE, FULL = 0, 1, 2, 3, 4

local how, id = ARGV[1], ARGV[2]
local entries, spent_in = {}, {}
for i = 1, tonumber(ARGV[3]) do
  local at = 3 + (i - 1) * 6
  local entry = {
    name = ARGV[at + 1], kind = tonumber(ARGV[at + 2]), span = tonumber(ARGV[at + 3]),
    amount = tonumber(ARGV[at + 4]), burst = tonumber(ARGV[at + 5]), spent = tonumber(ARGV[at + 6]),
  }
  entries[i] = entry
  spent_in[entry.name] = add(spent_in[entry.name] or 0, entry.spent)
end

sweep()

local known = hold(id)
local outcome, open = UNKNOWN, true
if is_there(known) then
  if known.state == SETTLED then
    commit()
    return { leases_ended, DUPLICATE }
  end
  open = known.state ~= ENDED
  outcome = open and CLOSED or CORRECTED
end

if how == 'settle' then
  local costly = {}
  for index, entry in ipairs(entries) do costly[index] = entry.spent > 0 and entry.name end
  local without_room = make_room(costly)
  if without_room then
    commit()
    return { leases_ended, FULL, without_room - 1 }
  end
end

local answer, posted = { leases_ended, outcome }, {}
local function post(name, before, spent, refunded, debt)
  local n = #answer
  answer[n + 1], answer[n + 2], answer[n + 3], answer[n + 4], answer[n + 5] = name, before, spent, refunded, debt
  posted[name] = true
end

local stored = false
if is_there(known) then
  stored = known.stored
  remove_hold(id, known)
  for _, stake in ipairs(known.stakes) do
    local before = add(stake.held, stake.lapsed)
    local spent = 0
    -- An account of the hold without an entry is charged all that was set aside in it.
    if how == 'settle' then spent = spent_in[stake.name] or before end
    local a, refunded, debt = account(stake.name), 0, 0
    if a then
      advance(a, now)
      refunded, debt = close(a, stake, open, spent)
      accounts_changed[stake.name] = true
    end
    post(stake.name, before, spent, refunded, debt)
  end
end

-- What another slot did not grant may be asked for again.
if how == 'release' then
  commit()
  return answer
end

if how == 'settle' then
  for _, entry in ipairs(entries) do
    if not posted[entry.name] then
      local spent = spent_in[entry.name]
      if spent > 0 then
        local a = account_or_new(entry.name, entry)
        advance(a, now)
        owe(a, spent)
      end
      post(entry.name, 0, spent, 0, spent)
    end
  end
end
if meta.holds < HOLDS_MOST then
  put_hold(id, { state = SETTLED, from = now, lease = 0, stakes = {}, stored = stored })
end
commit()
return answer
