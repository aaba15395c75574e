"""The hand-written tools of the desk-and-travel assistant."""

from __future__ import annotations

from dtdr.tools import Parameter, Tool

# name | description | parameters ("*" marks a list, "?" an optional one)
_TOOLS = """
find_email_address | Look a person up in the contacts and give their mail address. | name
find_phone_number | Look a person up in the contacts and give their telephone number. | name
send_email | Send a new mail, with or without attachments. | to* subject body? attachments*?
search_mail | Find messages in the mailbox by sender or words. | words
reply_to_email | Answer a message in its thread. | message body
forward_email | Pass a message on to other people. | message to*
send_sms | Send a text message to telephone numbers. | to* text
list_events | List what is in the calendar on a day. | day
create_event | Put a new appointment into the calendar. | title day time? invitees*? location? link?
move_event | Change the day or time of an appointment. | event day time?
cancel_event | Take an appointment out of the calendar. | event
find_free_slot | Find a time at which people are all free. | people* day
create_meeting_link | Open a room for a video call and give its link. | title
create_note | Write a new note. | title text
append_to_note | Add text to the end of an existing note. | note text
search_notes | Find a note by what it is about. | words
create_reminder | Remind the user of something at a time. | text time
set_timer | Start a countdown. | minutes
find_file | Find a file by its name and give its path. | name
share_file | Give people access to a file. | file people*
print_document | Print a document on the office printer. | file copies?
summarize_document | Write a short summary of a document. | document
convert_to_pdf | Turn a document into a PDF. | file
merge_pdfs | Put several PDF files into one. | files*
translate_text | Translate text into another language. | text language
read_spreadsheet | Read the cells of a spreadsheet. | file
append_row | Add a row to the end of a spreadsheet. | file values
make_chart | Draw a chart from figures. | data
web_search | Search the web. | words
search_places | Find shops, restaurants and other places in a town. | what near
reserve_table | Book a table in a restaurant. | restaurant day time people
get_directions | Give the way from one place to another. | origin destination mode?
estimate_travel_time | Say how long a journey takes. | origin destination
get_weather | Give the forecast for a place and a day. | place day
search_flights | Find flights between two cities. | origin destination day
book_flight | Buy a ticket for a flight. | flight
check_in_flight | Check in for a booked flight and give the boarding pass. | flight
get_flight_status | Say whether a flight is on time. | flight
search_hotels | Find hotels with free rooms in a city. | city day nights?
book_hotel | Book a hotel room. | hotel nights?
search_trains | Find train connections between two cities. | origin destination day
book_train | Buy a train ticket. | train
order_taxi | Order a taxi. | pickup destination? time?
convert_currency | Convert a sum of money at today's rate. | amount currency to
scan_receipt | Read shop, date and sum off a photograph of a receipt. | image
log_expense | Record an expense for refunding. | amount category
expense_report | Put a month's expenses together in a report. | month
"""


def parameters(specification: str) -> tuple[Parameter, ...]:
    """Parameters from ``"to* subject body?"``: ``*`` marks a list, ``?`` an optional one."""
    return tuple(
        Parameter(
            item.rstrip("*?"), "array" if "*" in item else "string", "", not item.endswith("?")
        )
        for item in specification.split()
    )


def _tool(line: str) -> Tool:
    name, description, specification = (part.strip() for part in line.split("|"))
    return Tool(name, description, parameters(specification))


BASE = tuple(map(_tool, _TOOLS.strip().splitlines()))
"""Written by hand; every query that names no service needs only these."""
